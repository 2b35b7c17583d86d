// The reference program (docs/reference-program.md) on paper: set-up, then the training or inference loop.

#include <fmt/format.h>

#include <memory>

#include "estimators/aten/autocast.h"
#include "estimators/aten/ops.h"
#include "estimators/autograd/engine.h"
#include "estimators/autograd/host_store.h"
#include "estimators/autograd/interpreter.h"
#include "estimators/pipeline.h"
#include "estimators/step/clip.h"
#include "estimators/step/kv_cache.h"
#include "estimators/step/loss.h"
#include "estimators/step/module_order.h"
#include "estimators/step/muon.h"
#include "estimators/step/optimizer.h"
#include "estimators/step/probe.h"
#include "estimators/step/scaler.h"
#include "estimators/step/steps.h"

namespace memplan {

namespace {

DType half_of(Precision p) { return p == Precision::amp_bf16 || p == Precision::bf16 ? DType::bfloat16 : DType::float16; }

/// model.bfloat16() or model.half(): every floating parameter, buffer and input of the default type.
DType converted(DType d, Precision p) {
  const bool pure = p == Precision::bf16 || p == Precision::fp16;
  return pure && is_floating(d) ? half_of(p) : d;
}

class Program {
 public:
  Program(Run& run, const Tape& tape, const TrainingSetup& setup) : r_(run), tape_(tape), setup_(setup) {
    env_.values.resize(tape.values.size());
  }

  void probe(const std::function<void(const Run&, const Environment&)>& look) {
    move_model();
    move_batch();
    r_.phase = Phase::forward;
    Restore<bool> grad(r_.grad_mode, setup_.mode == Mode::training);
    begin_autocast();
    run_forward(r_, tape_, env_);
    look(r_, env_);
  }

  /// All steps. The first batch carries a target whose shape only the first forward pass tells: its place in the order
  /// of events is kept, and its size filled in then. False when there turns out to be no target (`target` is set: run again).
  bool run(std::optional<TargetShape>& target, CallObserver* observer, const std::vector<KvLayer>& kv) {
    target_shape_ = &target;
    env_.observer = observer;
    move_model();
    const bool training = setup_.mode == Mode::training;
    if (setup_.kv_cache) cache_ = make_kv_cache(r_, kv, *setup_.kv_cache);
    if (training && !setup_.offload.optimizer) make_optimizers();
    for (std::int64_t s = 1; s <= setup_.steps; ++s) {
      r_.step = static_cast<std::int32_t>(s);
      r_.schedule.step_begins.push_back(static_cast<std::int32_t>(r_.schedule.events.size()));
      if (training && !train()) return false;
      if (!training && setup_.keep_loss_history && !evaluate()) return false;
      if (!training && !setup_.keep_loss_history) infer();
      if (setup_.empty_cache) r_.empty_cache();
    }
    return true;
  }

 private:
  /// model.to("cuda"): children before their parent, parameters before buffers (torch/nn/modules/module.py, _apply).
  void move_model() {
    r_.phase = Phase::setup;
    const auto recurrent = flattened_groups(tape_);
    const auto order = module_order(tape_);
    // The layer's own _apply runs once all its parameters have moved.
    auto group_end = [&](const std::vector<ValueId>& group) {
      for (std::size_t i = order.size(); i-- > 0;)
        if (std::find(group.begin(), group.end(), order[i]) != group.end()) return order[i];
      return ValueId{};
    };
    for (ValueId id : order) {
      const TapeValue& v = tape_.values[id.index];
      r_.begin_op("model.to");
      Value& slot = env_.values[id.index];
      if (v.same_storage_as.valid() && env_.values[v.same_storage_as.index].is_tensor()) {
        slot = env_.values[v.same_storage_as.index];
        continue;
      }
      const DType dtype = v.keeps_dtype ? v.dtype : converted(v.dtype, setup_.precision);
      Tensor t = v.on_host ? r_.host(Dims(v.sizes), dtype)
                           : formatted(Dims(v.sizes), dtype, v.kind == ValueKind::parameter ? Category::parameter : Category::buffer);
      r_.label(t, v.name);
      r_.set_reason(t, v.kind == ValueKind::parameter ? "parameter" : "buffer");
      if (v.kind == ValueKind::parameter && v.requires_grad && is_floating(dtype)) {
        t->requires_grad_leaf = true;  // also under no_grad: autocast keeps the casts of such leaves
        trainable_.push_back(t);
      }
      slot = t;
      for (const auto& group : recurrent)
        if (group_end(group) == id) flatten(group);
    }
    // The optimizer walks the parameters in registration order, not in the order in which they were moved.
    TensorList ordered;
    for (ValueId id : tape_.parameters) {
      const Value& v = env_.values[id.index];
      if (!v.is_tensor()) continue;
      const bool wanted = std::any_of(trainable_.begin(), trainable_.end(), [&](const Tensor& t) { return t.get() == v.tensor().get(); });
      const bool seen = std::any_of(ordered.begin(), ordered.end(), [&](const Tensor& t) { return t.get() == v.tensor().get(); });
      if (wanted && !seen) ordered.push_back(v.tensor());
    }
    trainable_ = std::move(ordered);
  }

  /// With model.to(memory_format=torch.channels_last) tensors of four dimensions lie in that order, batches too.
  Tensor formatted(const Dims& sizes, DType dtype, Category category) {
    if (setup_.channels_last && sizes.size() == 4) return r_.empty_strided(sizes, channels_last_strides(sizes), dtype, category);
    return r_.empty(sizes, dtype, category);
  }

  /// RNNBase.flatten_parameters: one buffer for all weights of a recurrent layer, whose parameters become views of it.
  void flatten(const std::vector<ValueId>& group) {
    // torch.backends.cudnn.is_acceptable knows no bfloat16: such weights stay apart, and every call packs them anew.
    if (setup_.precision == Precision::bf16) return;
    r_.begin_op("flatten_parameters");
    std::int64_t elements = 0;
    for (ValueId id : group) {
      const Value& v = env_.values[id.index];
      if (!v.is_tensor() || v.tensor()->on_host) return;
      elements = checked_add(elements, v.tensor()->numel());
    }
    const Tensor first = env_.values[group[0].index].tensor();
    Tensor flat = r_.empty({elements}, first->dtype, Category::parameter);
    r_.label(flat, first->name);
    r_.set_reason(flat, "parameters of a recurrent layer, in one buffer");
    std::int64_t at = 0;
    for (ValueId id : group) {
      // weight.data = view: the tensor stays, its memory changes.
      Tensor weight = env_.values[id.index].tensor();
      weight->storage = flat->storage;
      weight->offset = at;
      at += weight->numel();
    }
  }

  /// x = x.to("cuda") for every input of the batch; the name's old tensor goes when the new one is bound.
  void move_batch() {
    r_.phase = Phase::data;
    r_.scope = r_.call = -1;
    r_.begin_op("batch.to");
    batch_.resize(tape_.inputs.size());
    for (std::size_t i = 0; i < tape_.inputs.size(); ++i) {
      const TapeValue& v = tape_.values[tape_.inputs[i].index];
      if (v.number) {
        env_.values[tape_.inputs[i].index] = Value(*v.number);
        continue;
      }
      Tensor fresh = formatted(Dims(v.sizes), converted(v.dtype, setup_.precision), Category::input);
      r_.label(fresh, v.name);
      r_.set_reason(fresh, "batch");
      batch_[i] = fresh;
      env_.values[tape_.inputs[i].index] = fresh;
    }
  }

  void drop_names() {
    for (ValueId id : tape_.inputs) env_.values[id.index] = Value();
    for (std::size_t i = 0; i < tape_.values.size(); ++i)
      if (tape_.values[i].kind == ValueKind::computed) env_.values[i] = Value();
  }

  /// output = model(x): the name's old value goes when the call has returned.
  void forward() {
    r_.phase = Phase::forward;
    begin_autocast();
    run_forward(r_, tape_, env_);
    r_.scope = r_.call = -1;
    std::vector<Value> fresh;
    for (ValueId id : tape_.outputs) fresh.push_back(env_.values[id.index]);
    drop_names();
    output_ = std::move(fresh);
    for (const Value& v : output_)
      if (v.is_tensor()) r_.set_reason(v.tensor(), "the name of the model's output");
  }

  void begin_autocast() {
    r_.autocast_dtype = half_of(setup_.precision);
    r_.autocast = setup_.precision == Precision::amp_bf16 || setup_.precision == Precision::amp_fp16;
  }

  void end_autocast() {
    r_.autocast = false;
    r_.cast_cache.clear();
  }

  bool train() {
    for (std::int64_t k = 0; k < setup_.accumulate; ++k) {
      move_batch();
      move_target();
      if (k == 0 && setup_.zero_grad == ZeroGrad::begin_set_none) zero_grad();
      {
        const auto store = std::make_shared<HostStore>();
        Restore<SaveHook*> offload(r_.save_hook, setup_.offload.activations ? store.get() : nullptr);
        forward();
        if (!take_loss(setup_.accumulate > 1)) return false;
      }
      end_autocast();
      if (setup_.precision == Precision::amp_fp16) {
        Tensor scaled = scaler_.scale(r_, loss_);
        backward(r_, scaled);
      } else {
        backward(r_, loss_);
      }
    }
    if (setup_.precision == Precision::amp_fp16) scaler_.unscale(r_);
    if (setup_.clip_grad_norm) clip_grad_norm(r_, trainable_);
    if (optimizer_) optimizer_->step(r_);
    if (setup_.offload.optimizer) step_on_host();
    if (setup_.precision == Precision::amp_fp16) scaler_.update(r_);
    if (setup_.zero_grad == ZeroGrad::end_set_none) zero_grad();
    return true;
  }

  void make_optimizers() {
    if (setup_.optimizer.kind != OptimizerKind::muon) {
      optimizer_ = make_optimizer(r_, setup_.optimizer, trainable_);
      return;
    }
    TensorList hidden, others;
    const std::vector<ValueId> chosen = hidden_matrices(tape_);
    for (const Tensor& p : trainable_) {
      const bool takes = std::any_of(chosen.begin(), chosen.end(), [&](ValueId id) {
        const Value& v = env_.values[static_cast<std::size_t>(id.index)];
        return v.is_tensor() && v.tensor().get() == p.get();
      });
      (takes ? hidden : others).push_back(p);
    }
    optimizer_ = make_muon(r_, setup_.optimizer, hidden, others);
  }

  /// y = host_y.to("cuda"). Before the first forward pass its shape is not known.
  void move_target() {
    target_known_ = target_shape_->has_value();
    target_ = target_known_ ? make_target(r_, **target_shape_) : make_target(r_, TargetShape{.sizes = {1}});
  }

  /// False when the program must begin anew without a target.
  bool take_loss(bool mean) {
    if (!target_known_) {
      *target_shape_ = target_shape(output_, setup_);
      if (!has_target(**target_shape_)) return false;
      r_.resize(target_, (*target_shape_)->sizes, (*target_shape_)->dtype);
    }
    r_.phase = Phase::loss;
    r_.begin_op("loss");
    Tensor fresh = compute_loss(r_, output_, target_, **target_shape_);
    if (mean) fresh = op::div_number(r_, fresh);
    loss_ = std::move(fresh);
    if (setup_.keep_loss_history) losses_.push_back(loss_);
    return true;
  }

  /// The optimizer works on copies in host memory: gradients go there one after the other, and the new weights are
  /// copied into the old ones.
  void step_on_host() {
    r_.phase = Phase::optimizer;
    r_.scope = r_.call = -1;
    r_.begin_op("gradients to the host");
    for (const Tensor& p : trainable_) p->grad.reset();
  }

  /// An evaluation that forgets torch.no_grad() and keeps every loss: losses.append(loss).
  bool evaluate() {
    move_batch();
    move_target();
    forward();
    if (!take_loss(false)) return false;
    end_autocast();
    return true;
  }

  void infer() {
    move_batch();
    Restore<bool> no_grad(r_.grad_mode, false);
    forward();
    end_autocast();
  }

  void zero_grad() {
    r_.begin_op("optimizer.zero_grad");
    for (const Tensor& p : trainable_) p->grad.reset();
  }

  Run& r_;
  const Tape& tape_;
  const TrainingSetup& setup_;
  Environment env_;
  TensorList trainable_;
  TensorList batch_;
  std::vector<Value> output_;
  std::optional<TargetShape>* target_shape_ = nullptr;
  bool target_known_ = false;
  Tensor target_, loss_;
  TensorList losses_;
  TensorList cache_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
};

}  // namespace

void probe_forward(const Tape& tape, const TrainingSetup& setup, const Device& device, const std::function<void(const Run&, const Environment&)>& look) {
  Tape kept = tape;
  kept.checkpoints.clear();
  for (Call& call : kept.calls) call.last_uses.clear();
  Run run(setup, device);
  Program(run, kept, setup).probe(look);
}

Result<Schedule> run_steps(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return run_steps_observed(tape, setup, device, nullptr);
}

Result<Schedule> run_steps_observed(const Tape& tape, const TrainingSetup& setup, const Device& device, CallObserver* observer) {
  return catching([&] {
    std::optional<TargetShape> target;
    std::vector<KvLayer> kv;
    if (setup.kv_cache) probe_forward(tape, setup, device, [&](const Run&, const Environment& env) { kv = kv_layers(tape, env); });
    for (;;) {
      Run run(setup, device);
      Program program(run, tape, setup);
      // The program's names are still bound when the record closes: their memory stays taken in the schedule.
      if (program.run(target, observer, kv)) return run.close();
    }
  });
}

}  // namespace memplan
