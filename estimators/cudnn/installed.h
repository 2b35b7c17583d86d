// Asks the cuDNN that is installed with PyTorch about convolutions that memplan's tables lack. It answers for any card
// without a GPU, under the emulated one (emulated_gpu/cudnn_convolutions.cpp).
#pragma once

#include <memory>
#include <string>

#include "estimators/runtime/torch/aten/cudnn_workspace.h"

namespace memplan {

/// A cuDNN that is looked for when it is first asked, in a child process that the answers' owner takes along. What it
/// said is kept in the user's cache folder (answers.h), so a question is asked once.
class InstalledCudnn final : public CudnnLibrary {
 public:
  /// `where`: a libcudnn.so.9 or its folder; empty: cudnn_places(). Failure(usage) when it names none.
  explicit InstalledCudnn(std::string where);
  ~InstalledCudnn() override;

  std::optional<Bytes> workspace(const ConvProblem& problem, ConvPass pass, const Device& device,
                                 std::string_view version) override;

  /// Why one that somebody named, or that is there, could not be asked; empty: nothing went wrong.
  std::string complaint() const;

 private:
  /// What that version answers PyTorch, or ONNX Runtime.
  std::optional<Bytes> answer(const ConvProblem& problem, ConvPass pass, const Device& device, std::string_view version,
                              bool onnxruntime);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace memplan
