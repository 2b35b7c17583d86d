#include "estimators/autograd/checkpoint.h"

#include "estimators/tape/uses.h"

namespace memplan {

/// The hook of the second run: keeps what the first run left placeholders for.
struct CheckpointFrame::Recording : SaveHook {
  explicit Recording(CheckpointFrame& f) : frame(f) {}
  CheckpointFrame& frame;
  void save(Run& run, Node&, const Tensor& t, bool) override {
    if (static_cast<std::int32_t>(frame.tensors_.size()) >= frame.slots_) return;
    run.materialize(t);
    frame.tensors_.push_back(run.detach(t));
  }
};

CheckpointFrame::CheckpointFrame(const Run& run, const Tape& tape, const CheckpointRegion& region, const Environment& env, RunCalls run_calls)
    : tape_(tape), region_(region), run_calls_(std::move(run_calls)), autocast_(run.autocast) {
  std::vector<bool> seen(tape.values.size(), false);
  auto take = [&](ValueId id) {
    if (!id.valid() || seen[static_cast<std::size_t>(id.index)]) return;
    seen[static_cast<std::size_t>(id.index)] = true;
    inputs_.emplace_back(id.index, env.values[static_cast<std::size_t>(id.index)]);
  };
  for (std::int32_t i = region.first; i <= region.last; ++i) {
    const Call& call = tape.calls[static_cast<std::size_t>(i)];
    for_each_value(call, take);
    for (ValueId id : call.outputs)
      if (id.valid()) seen[static_cast<std::size_t>(id.index)] = true;
  }
}

void CheckpointFrame::save(Run& run, Node& node, const Tensor&, bool output) {
  node.packed.resize(node.saved.size());
  node.saved.emplace_back();
  node.packed.push_back({shared_from_this(), slots_++});
  last_call_ = run.call;
  last_is_output_ = output;
}

Tensor CheckpointFrame::unpack(Run& run, std::int32_t slot) {
  // The frame must outlive the recomputation even when its last node lets go of it meanwhile.
  const auto self = shared_from_this();
  if (!recomputed_) recompute(run);
  recomputed_ = true;
  return static_cast<std::size_t>(slot) < tensors_.size() ? std::move(tensors_[static_cast<std::size_t>(slot)]) : Tensor();
}

void CheckpointFrame::recompute(Run& run) {
  const auto scope = run.scope, call = run.call;
  const std::int32_t op = run.schedule.ops.empty() ? -1 : run.schedule.ops.back().name;
  {
    Recording recording(*this);
    Restore<SaveHook*> hook(run.save_hook, &recording);
    Restore<bool> grad(run.grad_mode, true), again(run.recomputing, true), autocast(run.autocast, autocast_);
    Environment env;
    env.values.resize(tape_.values.size());
    for (const auto& [index, value] : inputs_) env.values[static_cast<std::size_t>(index)] = value;
    if (last_call_ > region_.first) run_calls_(run, env, region_.first, last_call_ - 1);
    if (last_call_ >= region_.first) {
      // The run stops as soon as the last tensor is saved. Inputs are saved before an op's kernel runs, so that the
      // outputs of such an op are never made.
      Restore<bool> phantom(run.phantom, !last_is_output_);
      run_calls_(run, env, last_call_, last_call_);
    }
    if (autocast_) run.cast_cache.clear();
  }
  run.scope = scope;
  run.call = call;
  if (op >= 0) run.begin_op(op);
}

}  // namespace memplan
