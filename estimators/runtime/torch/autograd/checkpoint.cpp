#include "estimators/runtime/torch/autograd/checkpoint.h"

#include <algorithm>

#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// What saves the inputs of a stretch stands in no graph; no op's node has this number.
constexpr std::uint64_t saver_sequence = UINT64_MAX;

}  // namespace

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

std::set<std::string, std::less<>> kept_ops(const std::vector<std::string>& words) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> families{
      {"matmul", {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}},
      {"attention",
       {"aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention"}},
      {"convolution", {"aten::convolution"}}};
  std::set<std::string, std::less<>> ops;
  for (const std::string& word : words) {
    const auto family = families.find(word);
    if (family != families.end()) {
      ops.insert(family->second.begin(), family->second.end());
      continue;
    }
    bool known = false;
    for (const auto& [name, members] : families)
      known = known || std::find(members.begin(), members.end(), word) != members.end();
    if (!known)
      fail(ErrorKind::usage, "'" + word + "' is no op whose outputs can be kept", setting(Field::checkpoint_save),
           "use matmul, attention, convolution, or one of their ops such as aten::addmm");
    ops.insert(word);
  }
  return ops;
}

TensorList KeptOutputs::take(Run& run, std::string_view op) {
  // Outputs of an op that is never finished stay where they are.
  if (!run.recomputing || run.phantom) return {};
  const auto it = kept_.find(op);
  if (it == kept_.end() || it->second.empty()) return {};
  TensorList outputs = std::move(it->second.front());
  it->second.pop_front();
  return outputs;
}

void KeptOutputs::keep(Run& run, std::string_view op, const TensorList& outputs) {
  if (run.recomputing || !ops_.count(op)) return;
  TensorList plain;  // below autograd: without their history
  for (const Tensor& t : outputs) {
    plain.push_back(t ? run.detach(t) : Tensor());
    if (t && t->storage->allocation >= 0) run.set_reason(t, "kept by selective checkpointing");
  }
  kept_[std::string(op)].push_back(std::move(plain));
}

CheckpointFrame::CheckpointFrame(Run& run, const Tape& tape, std::size_t region, const Environment& env,
                                 RunCalls run_calls, const std::set<std::string, std::less<>>& keep)
    : tape_(tape),
      index_(region),
      region_(tape.checkpoints[region]),
      run_calls_(std::move(run_calls)),
      autocast_(run.autocast),
      hooks_(env.hooks ? env.hooks->again() : nullptr),
      saver_(new Node),
      keep_(keep),
      kept_(keep.empty() ? nullptr : std::make_unique<KeptOutputs>(keep)) {
  saver_->run = &run;
  saver_->sequence = saver_sequence;
  run.call = region_.first;
  std::vector<bool> seen(tape.values.size(), false);
  auto take = [&](ValueId id) {
    if (!id.valid() || seen[static_cast<std::size_t>(id.index)]) return;
    seen[static_cast<std::size_t>(id.index)] = true;
    const Value& value = env.values[static_cast<std::size_t>(id.index)];
    const ValueKind kind = tape.values[static_cast<std::size_t>(id.index)].kind;
    const bool argument = kind == ValueKind::computed || kind == ValueKind::user_input;
    if (run.save_hook && argument && value.is_tensor() && value.tensor() && !value.tensor()->on_host) {
      const Tensor& t = value.tensor();
      run.save(saver_.get(), t);
      arguments_.push_back(t);
      saved_.push_back({id.index, t->grad_fn, t->output_nr});
    } else {
      inputs_.emplace_back(id.index, value);
    }
  };
  for (std::int32_t i = region_.first; i <= region_.last; ++i) {
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
  last_is_input_ = node.sequence == saver_sequence;
}

Tensor CheckpointFrame::unpack(Run& run, std::int32_t slot) {
  // The frame must outlive the recomputation even when its last node lets go of it meanwhile.
  const auto self = shared_from_this();
  if (!recomputed_) recompute(run);
  recomputed_ = true;
  // PyTorch raises CheckpointError.
  if (static_cast<std::size_t>(slot) >= tensors_.size())
    fail_input("a checkpointed stretch saves fewer tensors when it runs again", {},
               "PyTorch ends with a CheckpointError here; checkpoint other modules");
  return std::move(tensors_[static_cast<std::size_t>(slot)]);
}

void CheckpointFrame::recompute(Run& run) {
  const auto scope = run.scope, call = run.call;
  const std::int32_t op = run.schedule.ops.empty() ? -1 : run.schedule.ops.back().name;
  // Inputs that an outer stretch keeps let it run first.
  TensorList arguments;
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    if (i < saver_->packed.size()) arguments.push_back(saver_->packed[i].frame->unpack(run, saver_->packed[i].slot));
    if (arguments.size() <= i || !arguments[i])
      fail(ErrorKind::internal, "an outer checkpoint did not bring an inner one's input back");
    arguments.back()->grad_fn = saved_[i].grad_fn;
    arguments.back()->output_nr = saved_[i].output_nr;
  }
  {
    Recording recording(*this);
    ScopedValue<SaveHook*> hook(run.save_hook, &recording);
    ScopedValue<OpCache*> kept(run.op_cache, kept_.get());
    ScopedValue<bool> grad(run.grad_mode, true), again(run.recomputing, true), autocast(run.autocast, autocast_);
    Environment env;
    env.values.resize(tape_.values.size());
    env.hooks = hooks_;
    // The stretch's own hooks stand around it.
    const auto enter = [&](std::int32_t upto) {
      const std::int32_t around = last_call_ == region_.first ? region_.last : INT32_MAX;
      if (env.hooks) env.hooks->before(run, env, last_call_, {upto, around});
    };
    for (const auto& [index, value] : inputs_) env.values[static_cast<std::size_t>(index)] = value;
    for (std::size_t i = 0; i < saved_.size(); ++i)
      env.values[static_cast<std::size_t>(saved_[i].value)] = arguments[i];
    if (last_call_ > region_.first) run_calls_(run, env, region_.first, last_call_ - 1);
    if (last_is_input_) {
      // The last inner stretch has its inputs saved, and the run stops before it.
      std::size_t inner = index_ + 1;
      while (tape_.checkpoints[inner].first != last_call_) ++inner;
      enter(tape_.checkpoints[inner].last);
      std::make_shared<CheckpointFrame>(run, tape_, inner, env, run_calls_, keep_);
    } else if (last_call_ >= region_.first) {
      // The run stops as soon as the last tensor is saved. Inputs are saved before an op's kernel runs, so that the
      // outputs of such an op are never made.
      enter(-1);
      env.hooks = nullptr;
      ScopedValue<bool> phantom(run.phantom, !last_is_output_);
      run_calls_(run, env, last_call_, last_call_);
    }
    if (hooks_) hooks_->stopped();
    if (autocast_) run.cast_cache.clear();
  }
  run.scope = scope;
  run.call = call;
  if (op >= 0) run.begin_op(op);
}

}  // namespace memplan
