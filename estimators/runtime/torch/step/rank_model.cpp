#include "estimators/runtime/torch/step/rank_model.h"

#include <algorithm>

#include "estimators/runtime/torch/autograd/checkpoint.h"
#include "estimators/setup/optimizers.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/transforms/module_order.h"

namespace memplan {

DType converted(DType d, Precision p) {
  const bool pure = p == Precision::bf16 || p == Precision::fp16;
  return pure && is_floating(d) ? half_of(p) : d;
}

OptimizerSetup optimizer_of_rank(const TrainingSetup& setup) {
  OptimizerSetup optimizer = setup.optimizer;
  const WrapperRow& framework = wrapper_of(setup.parallel.sharding);
  const bool adam = optimizer_model(optimizer.kind).adam;
  if (framework.fused_adam && adam && optimizer.impl == OptimizerImpl::automatic) optimizer.impl = OptimizerImpl::fused;
  // With sequence parallelism the norms' parameters are DTensors as well; Megatron-LM has no DTensors.
  const bool mixed = setup.parallel.tensor > 1 && !setup.parallel.sequence_parallel && framework.plain_parameters;
  if (mixed && optimizer.impl == OptimizerImpl::automatic) optimizer.impl = OptimizerImpl::loop;
  return optimizer;
}

RankModel::RankModel(Run& run, const Tape& tape, const TrainingSetup& setup, const Ranks& ranks)
    : r_(run), tape_(tape), setup_(setup), ranks_(ranks), framework_(wrapper_of(ranks.sharding)) {
  env.values.resize(tape.values.size());
  if (!tape.checkpoints.empty()) env.kept_ops = kept_ops(setup.checkpoint_save);
  run.linear = framework_.linear;
}

/// The model on the device, with what data parallelism puts around it.
void RankModel::to_device(bool wrapped) {
  if (!wrapped) return move();
  const bool wraps = setup_.mode == Mode::training || framework_.in_inference;
  if (wraps && framework_.from_host)
    r_.phase = Phase::setup;
  else
    move();
  const PlaceValue place_value = [this](const TapeValue& v) { return place(v); };
  if (wraps) wrapper_ = framework_.make({r_, tape_, setup_, ranks_, env, place_value, trainable});
  env.hooks = wrapper_.get();
  r_.backward_hooks = wrapper_.get();
}

Tensor RankModel::place(const TapeValue& v) {
  const bool stays = v.keeps_dtype || (!framework_.casts_buffers && v.kind != ValueKind::parameter);
  const DType dtype = stays ? v.dtype : converted(v.dtype, setup_.precision);
  Tensor t = v.on_host ? r_.host(Dims(v.sizes), dtype)
                       : formatted(Dims(v.sizes), dtype,
                                   v.kind == ValueKind::parameter ? Category::parameter : Category::buffer);
  r_.label(t, v.name);
  r_.set_reason(t, v.kind == ValueKind::parameter ? "parameter" : "buffer");
  return t;
}

/// model.to("cuda"): children before their parent, parameters before buffers (torch/nn/modules/module.py, _apply).
void RankModel::move() {
  r_.phase = Phase::setup;
  const auto recurrent = flattened_groups(tape_);
  const auto order = module_order(tape_);
  // The layer's own _apply runs once all its parameters have moved.
  auto group_end = [&](const FlatWeights& group) {
    for (std::size_t i = order.size(); i-- > 0;)
      if (std::ranges::find(group.weights, order[i]) != group.weights.end()) return order[i];
    return ValueId{};
  };
  for (ValueId id : order) {
    const TapeValue& v = tape_.values[id.index];
    r_.begin_op("model.to");
    Value& slot = env.values[id.index];
    if (v.same_storage_as.valid() && env.values[v.same_storage_as.index].is_tensor()) {
      slot = env.values[v.same_storage_as.index];
      continue;
    }
    Tensor t = place(v);
    if (v.kind == ValueKind::parameter && v.requires_grad && (is_floating(t->dtype) || is_complex(t->dtype))) {
      t->requires_grad_leaf = true;  // also under no_grad: autocast keeps the casts of such leaves
      trainable.push_back(t);
    }
    slot = t;
    // The whole model never lies on one device.
    if (framework_.divides_at_once && setup_.mode == Mode::training && v.kind == ValueKind::parameter)
      r_.free_memory(t);
    for (const auto& group : recurrent)
      if (group_end(group) == id) flatten(group);
  }
  // The optimizer walks the parameters in registration order, not in the order in which they were moved.
  TensorList ordered;
  for (ValueId id : tape_.parameters) {
    const Value& v = env.values[id.index];
    if (!v.is_tensor()) continue;
    const bool wanted =
        std::any_of(trainable.begin(), trainable.end(), [&](const Tensor& t) { return t.get() == v.tensor().get(); });
    const bool seen =
        std::any_of(ordered.begin(), ordered.end(), [&](const Tensor& t) { return t.get() == v.tensor().get(); });
    if (wanted && !seen) ordered.push_back(v.tensor());
  }
  trainable = std::move(ordered);
}

/// RNNBase.flatten_parameters: one buffer for all weights of a recurrent layer, whose parameters become views of it.
void RankModel::flatten(const FlatWeights& group) {
  // torch.backends.cudnn.is_acceptable knows no bfloat16: such weights stay apart, and every call packs them anew.
  if (setup_.precision == Precision::bf16) return;
  r_.begin_op("flatten_parameters");
  std::int64_t elements = group.biases;
  for (ValueId id : group.weights) {
    const Value& v = env.values[id.index];
    if (!v.is_tensor() || v.tensor()->on_host) return;
    elements = checked_add(elements, v.tensor()->numel());
  }
  const Tensor first = env.values[group.weights[0].index].tensor();
  Tensor flat = r_.empty({elements}, first->dtype, Category::parameter);
  r_.label(flat, first->name);
  r_.set_reason(flat, "parameters of a recurrent layer, in one buffer");
  std::int64_t at = 0;
  for (ValueId id : group.weights) {
    // weight.data = view: the tensor stays, its memory changes.
    Tensor weight = env.values[id.index].tensor();
    weight->storage = flat->storage;
    weight->offset = at;
    at += weight->numel();
  }
}

void RankModel::drop_names() {
  for (ValueId id : tape_.inputs) env.values[id.index] = Value();
  for (std::size_t i = 0; i < tape_.values.size(); ++i)
    if (tape_.values[i].kind == ValueKind::computed && !tape_.values[i].in_attribute) env.values[i] = Value();
}

std::vector<Value> RankModel::forward(bool sync) {
  r_.phase = Phase::forward;
  r_.scope = r_.call = -1;
  if (wrapper_) wrapper_->begin_forward(r_, env, sync);
  begin_autocast();
  if (setup_.compile) {
    if (!compiled_)
      compiled_ = std::make_unique<compiled::CompiledModule>(r_, tape_, env, setup_.activation_memory_budget);
    compiled_->forward(r_, tape_, env);
  } else {
    run_forward(r_, tape_, env);
  }
  r_.scope = r_.call = -1;
  if (wrapper_) wrapper_->end_forward(r_, env);
  std::vector<Value> fresh;
  for (ValueId id : tape_.outputs) fresh.push_back(env.values[id.index]);
  drop_names();
  return fresh;
}

void RankModel::expect_backward(bool sync) {
  r_.backward_hooks = wrapper_.get();
  if (wrapper_) wrapper_->set_sync(sync);
}

void RankModel::reduce_gradients() {
  r_.scope = r_.call = -1;
  if (wrapper_) wrapper_->reduce_gradients(r_);
}

void RankModel::begin_backward() {
  if (!wrapper_) return;
  r_.phase = Phase::backward;
  wrapper_->begin_backward(r_);
}

Tensor RankModel::scaled(const Tensor& loss) { return wrapper_ ? wrapper_->scaled_loss(r_, loss) : loss; }

void RankModel::end_backward() {
  if (wrapper_) wrapper_->end_backward(r_);
}

void RankModel::begin_optimizer() {
  if (!wrapper_) return;
  r_.phase = Phase::optimizer;
  wrapper_->begin_optimizer(r_);
}

bool RankModel::end_optimizer() { return wrapper_ && wrapper_->end_optimizer(r_); }

Tensor RankModel::formatted(const Dims& sizes, DType dtype, Category category) {
  if (setup_.channels_last && sizes.size() == 4)
    return r_.empty_strided(sizes, channels_last_strides(sizes), dtype, category);
  return r_.empty(sizes, dtype, category);
}

void RankModel::begin_autocast() {
  r_.autocast_dtype = half_of(setup_.precision);
  r_.autocast = is_amp(setup_.precision);
}

void RankModel::end_autocast() {
  r_.autocast = false;
  r_.cast_cache.clear();
}

}  // namespace memplan
