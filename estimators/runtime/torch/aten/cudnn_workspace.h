// Workspace of cuDNN convolutions: what the engine that cuDNN's heuristics rank first asks for.
#pragma once

#include <optional>
#include <string_view>

#include "estimators/base/evidence.h"
#include "estimators/facts/device.h"
#include "estimators/runtime/torch/aten/tensor.h"
#include "estimators/tape/reading.h"

namespace memplan {

enum class ConvPass : std::uint8_t { forward, data_gradient, weight_gradient };

/// A convolution as PyTorch hands it to cuDNN (1-D ones as 2-D with a height of 1). A transposed convolution runs the
/// data gradient of the ordinary one; `input` and `output` are those of the ordinary one.
struct ConvProblem {
  Dims input;   ///< [N, C, H, W] or [N, C, D, H, W]
  Dims weight;  ///< [K, C / groups, R, S]
  Dims output;  ///< [N, K, P, Q]
  Dims stride, padding, dilation;
  std::int64_t groups = 1;
  DType dtype = DType::float32;
  bool channels_last = false;
};

struct ConvWorkspace {
  Bytes bytes;
  Evidence evidence = Evidence::recorded;  ///< of the figure
  std::string_view why;                    ///< where it comes from
  bool asked = false;                      ///< of an installed library, not of a table
};

/// A cuDNN that can be asked for what the tables lack (estimators/cudnn/installed.h). Searches ask from several
/// threads.
class CudnnLibrary {
 public:
  virtual ~CudnnLibrary() = default;
  /// What the heuristics of `version`, "9.19", say on this card; none where that version cannot be asked.
  virtual std::optional<Bytes> workspace(const ConvProblem& problem, ConvPass pass, const Device& device,
                                         std::string_view version) = 0;
};

/// As a version: cuDNN as ONNX Runtime asks it.
inline constexpr std::string_view for_onnxruntime = "onnxruntime";

/// Whose workspace is asked for.
struct CudnnOfRun {
  const Device& device;
  std::string_view version;  ///< of cuDNN, "9.19", or for_onnxruntime: the tables are those of 9.19
  WorkspaceReading reading = WorkspaceReading::nearest;  ///< of what no table has
  CudnnLibrary* library = nullptr;                       ///< asked before anything is scaled
};

/// What the heuristics of a version of cuDNN say. data/cudnn/workspaces.txt has what 9.19 says of the convolutions of
/// common models for the compute capabilities 7.5 to 12.0, and files beside it what other versions say otherwise. Where
/// it was tried the figures depend on the architecture alone (H100 and H200, A100 of 40 and 80 GB, L4 and RTX 4090, RTX
/// 3060 and 3090, RTX 5070 Ti and 5090 agree; T4 and RTX 2080 Ti do not). What the tables lack is asked of an installed
/// cuDNN where there is one. Else rules say it that were learnt from cuDNN's answers (cudnn_rules.h). Where there is
/// no rule (ONNX Runtime, no engine known), the figure of the nearest problem is scaled by the bytes of input, weight
/// and output: most of a workspace are copies of those in another layout.
///
/// The readings `least` and `most` are the ends of what cuDNN said of convolutions like the problem.
ConvWorkspace conv_workspace(const ConvProblem& problem, ConvPass pass, const CudnnOfRun& cudnn);

}  // namespace memplan
