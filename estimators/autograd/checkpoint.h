// torch.utils.checkpoint(use_reentrant=False) on paper (torch/utils/checkpoint.py of PyTorch 2.11).
#pragma once

#include <functional>
#include <memory>

#include "estimators/autograd/interpreter.h"

namespace memplan {

/// One checkpointed stretch of one forward pass. While it runs, saved tensors become placeholders; the first of them that
/// the backward pass needs runs the stretch again from its inputs, up to the last tensor that was saved (early stop), and
/// every recomputed tensor goes with the node that unpacks it.
class CheckpointFrame : public SavedFrame, public SaveHook, public std::enable_shared_from_this<CheckpointFrame> {
 public:
  /// Runs calls [first, last] of the tape with the values of an environment.
  using RunCalls = std::function<void(Run&, Environment&, std::int32_t first, std::int32_t last)>;

  /// Takes the values that the stretch reads from outside: they stay alive until its last node has run.
  CheckpointFrame(const Run& run, const Tape& tape, const CheckpointRegion& region, const Environment& env, RunCalls run_calls);

  void save(Run& run, Node& node, const Tensor& t, bool output) override;
  Tensor unpack(Run& run, std::int32_t slot) override;

 private:
  struct Recording;
  void recompute(Run& run);

  const Tape& tape_;
  const CheckpointRegion region_;
  const RunCalls run_calls_;
  const bool autocast_;
  std::vector<std::pair<std::int32_t, Value>> inputs_;
  std::int32_t slots_ = 0;       ///< tensors saved in the forward pass
  std::int32_t last_call_ = -1;  ///< call that saved the last of them
  bool last_is_output_ = false;
  bool recomputed_ = false;
  TensorList tensors_;
};

}  // namespace memplan
