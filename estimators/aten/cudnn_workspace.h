// Workspace of cuDNN convolutions: what the engine that cuDNN's heuristics rank first asks for.
#pragma once

#include <optional>

#include "estimators/aten/tensor.h"

namespace memplan {

enum class ConvPass : std::uint8_t { forward, data_gradient, weight_gradient };

/// A convolution as PyTorch hands it to cuDNN (1-D ones as 2-D with a height of 1). A transposed convolution runs the
/// data gradient of the ordinary one; `input` and `output` are those of the ordinary one.
struct ConvProblem {
  Dims input;    ///< [N, C, H, W] or [N, C, D, H, W]
  Dims weight;   ///< [K, C / groups, R, S]
  Dims output;   ///< [N, K, P, Q]
  Dims stride, padding, dilation;
  std::int64_t groups = 1;
  DType dtype = DType::float32;
  bool channels_last = false;
};

/// Bytes, or nothing where neither the rule nor the table knows the problem.
std::optional<Bytes> conv_workspace(const ConvProblem& problem, ConvPass pass, int sm, int multiprocessors);

}  // namespace memplan
