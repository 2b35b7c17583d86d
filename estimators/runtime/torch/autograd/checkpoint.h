// torch.utils.checkpoint(use_reentrant=False) on paper (torch/utils/checkpoint.py of PyTorch 2.11).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "estimators/runtime/torch/autograd/interpreter.h"

namespace memplan {

/// The ATen ops behind the words of TrainingSetup::checkpoint_save: "matmul", "attention", "convolution", or an op by
/// its own name. Failure(usage) for a word that names none that can be kept.
std::set<std::string, std::less<>> kept_ops(const std::vector<std::string>& words);

/// What a stretch under create_selective_checkpoint_contexts keeps: the outputs of some ops, from its first run to the
/// moment when its second run takes them.
class KeptOutputs : public OpCache {
 public:
  explicit KeptOutputs(const std::set<std::string, std::less<>>& ops) : ops_(ops) {}
  TensorList take(Run& run, std::string_view op) override;
  void keep(Run& run, std::string_view op, const TensorList& outputs) override;

 private:
  const std::set<std::string, std::less<>>& ops_;
  std::map<std::string, std::deque<TensorList>, std::less<>> kept_;
};

/// One checkpointed stretch of one forward pass. While it runs, saved tensors become placeholders; the first of them
/// that the backward pass needs runs the stretch again from its inputs, up to the last tensor that was saved (early
/// stop), and every recomputed tensor goes with the node that unpacks it. Stretches nest: the inputs of an inner one
/// are tensors that the outer one saves (_NoopSaveInputs is an autograd function of its own), so that the outer one
/// runs again before the first inner one can, and stops where the last inner one begins.
class CheckpointFrame : public SavedFrame, public SaveHook, public std::enable_shared_from_this<CheckpointFrame> {
 public:
  /// Runs calls [first, last] of the tape, those of inner stretches under checkpoints, with the values of an
  /// environment.
  using RunCalls = std::function<void(Run&, Environment&, std::int32_t first, std::int32_t last)>;

  /// Saves the values that the stretch, the `region`th of Tape::checkpoints, reads from outside: they stay alive until
  /// its last node has run. Under save_on_cpu those that are no weights wait in host memory instead, inside of another
  /// stretch they are that one's placeholders. `keep` names the ops whose outputs stay; empty: none.
  CheckpointFrame(Run& run, const Tape& tape, std::size_t region, const Environment& env, RunCalls run_calls,
                  const std::set<std::string, std::less<>>& keep);

  /// The stretch has run: checkpoint(function, *args) holds its arguments until then.
  void returned() { arguments_.clear(); }

  /// To be Run::op_cache while the stretch runs; null when nothing is kept.
  OpCache* cache() { return kept_.get(); }

  void save(Run& run, Node& node, const Tensor& t, bool output) override;
  Tensor unpack(Run& run, std::int32_t slot) override;

 private:
  struct Recording;
  void recompute(Run& run);

  const Tape& tape_;
  const std::size_t index_;
  const CheckpointRegion& region_;
  const RunCalls run_calls_;
  const bool autocast_;
  CallHooks* const hooks_;                              ///< of the modules inside of the stretch
  std::vector<std::pair<std::int32_t, Value>> inputs_;  ///< that stay where they are
  struct Saved {
    std::int32_t value;
    NodeRef grad_fn;
    std::int32_t output_nr;
  };
  std::vector<Saved> saved_;  ///< inputs that hooks around the stretch took: in the order of `saver_`'s
  NodeRef saver_;
  TensorList arguments_;  ///< the same, while the stretch runs
  const std::set<std::string, std::less<>>& keep_;
  std::int32_t slots_ = 0;       ///< tensors saved in the forward pass
  std::int32_t last_call_ = -1;  ///< call that saved the last of them
  bool last_is_output_ = false;
  bool last_is_input_ = false;  ///< of an inner stretch that begins with that call
  bool recomputed_ = false;
  TensorList tensors_;
  std::unique_ptr<KeptOutputs> kept_;
};

}  // namespace memplan
