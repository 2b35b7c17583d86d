// Casts of a float tensor to its own type. In a file of fp32 they are all that is left of `x.to(torch.float32)` and
// `x.to(input_dtype)`, which do nothing there and much in half precision.
#pragma once

#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/inferred.h"

namespace memplan::onnx_format {

enum class SameTypeCast : std::uint8_t {
  none,  ///< x.to(device) and the like
  up,    ///< to fp32, for statistics, a softmax or angles
  down,  ///< back to the dtype of the model
};

struct SameTypeCasts {
  /// By value that a Cast makes. A cast of what is fp32 in any precision goes down; one that a norm, a softmax or a
  /// rotary embedding reads goes up.
  std::vector<SameTypeCast> of;
  /// By node: the value that it reads in the file's graph as the result of an upward cast, and the cast's input, which
  /// it reads in the program. While tracing, x.to(x.dtype) is x, so that every later use of x appears to use the cast.
  std::unordered_map<std::int32_t, std::pair<GraphValueId, GraphValueId>> before_cast;
  /// By node: the operand that is cast to the weight's dtype before the product. T5LayerNorm does so in half
  /// precision alone (transformers, modeling_t5.py), so that a file of fp32 shows nothing.
  std::unordered_map<std::int32_t, GraphValueId> narrowed;
};

SameTypeCasts same_type_casts(const InferredValues& inferred, const std::vector<bool>& needed,
                              const std::vector<std::vector<GraphValueId>>& reads);

}  // namespace memplan::onnx_format
