// DeepSpeed's ZeRO (deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, partitioned_param_coordinator.py), as documented in
// docs/parallelism.md: weights in the training dtype, one flat partition of fp32 weights with optimizer state per rank,
// and communication buffers of a fixed number of elements.
#include <fmt/format.h>

#include <map>
#include <set>

#include "estimators/strategies/blocks.h"
#include "estimators/strategies/wrapper.h"

namespace memplan {

namespace {

// Defaults of the "zero_optimization" section, in elements.
constexpr std::int64_t reduce_bucket = 500'000'000, max_reuse_distance = 1'000'000'000, persistence_threshold = 100'000;

/// What all stages have: the partition that the optimizer works on, and the buckets of the backward pass.
class Zero : public ModelWrapper {
 public:
  Zero(const ParallelSetup& setup) : ranks_(setup.data * setup.context), stage_(1 + static_cast<int>(setup.sharding) - static_cast<int>(Sharding::zero1)) {}

  /// contiguous_gradients: the buffer that gradients are copied into before they are reduced; a second one where
  /// communication overlaps (the default of stage 3 only, which has one bucket per dtype all the same).
  void begin_backward(Run& r) override {
    if (bucket_) return;
    r.begin_op("ZeRO: reduce bucket");
    bucket_ = r.empty({reduce_bucket}, dtype_, Category::temporary);
    r.label(bucket_, "ZeRO reduce bucket");
    r.set_reason(bucket_, "reduce_bucket_size elements, for the backward pass");
  }

  void finished(Run&) override { bucket_.reset(); }

  /// The partition's gradients in fp32, for the optimizer.
  void begin_optimizer(Run& r) override {
    r.begin_op("ZeRO: gradients of the partition in fp32");
    master_->grad = r.empty(master_->sizes, DType::float32, Category::gradient);
    r.label(master_->grad, "ZeRO fp32 gradient partition");
    if (stage_ < 3) partition_.reset();
  }
  void end_optimizer(Run&) override { master_->grad.reset(); }

 protected:
  void make_master(Run& r, std::int64_t elements, TensorList& trainable) {
    master_ = r.empty({(elements + ranks_ - 1) / ranks_}, DType::float32, Category::optimizer_state);
    master_->requires_grad_leaf = true;
    r.label(master_, "ZeRO fp32 partition");
    r.set_reason(master_, fmt::format("fp32 weights of this rank, 1/{}", ranks_));
    trainable = {master_};
  }

  const std::int64_t ranks_;
  const int stage_;
  DType dtype_ = DType::float32;
  Tensor bucket_, master_, partition_;
};

/// Stages 1 and 2: whole weights on every rank, in one flat buffer that the parameters are views of.
class Zero12 : public Zero {
 public:
  Zero12(Run& r, const ParallelSetup& setup, TensorList& trainable) : Zero(setup), parameters_(trainable) {
    r.begin_op("DeepSpeedZeroOptimizer");
    for (const Tensor& p : parameters_) {
      elements_ = checked_add(elements_, p->numel());
      dtype_ = p->dtype;
    }
    // The weights go to the host, are put in a row there, and come back.
    elements_ = (elements_ + 2 * ranks_ - 1) / (2 * ranks_) * (2 * ranks_);
    for (const Tensor& p : parameters_) r.free_memory(p);
    Tensor flat = r.empty({elements_}, dtype_, Category::parameter);
    r.label(flat, "ZeRO flat parameters");
    r.set_reason(flat, "parameters, in one buffer");
    std::int64_t at = 0;
    for (const Tensor& p : parameters_) {
      p->storage = flat->storage;
      p->offset = at;
      at += p->numel();
    }
    make_master(r, elements_, trainable);
  }

  /// A gradient is copied into the bucket at once. Stage 2 keeps what is left of the rank's own partition; stage 1 keeps all.
  void accumulated(Run& r, TensorBody& leaf) override {
    if (stage_ == 1) return;
    if (!partition_) {
      partition_ = r.empty({elements_ / ranks_}, dtype_, Category::gradient);
      r.label(partition_, "ZeRO gradient partition");
    }
    if (leaf.numel() <= reduce_bucket) leaf.grad.reset();
  }
  void finished(Run& r) override {
    Zero::finished(r);
    if (stage_ == 2)
      for (const Tensor& p : parameters_) p->grad.reset();
  }
  void end_optimizer(Run& r) override {
    Zero::end_optimizer(r);
    for (const Tensor& p : parameters_) p->grad.reset();
  }

 private:
  TensorList parameters_;
  std::int64_t elements_ = 0;
};

/// Stage 3: weights are partitioned, too, and gathered around the modules that use them. A gathered weight stays while it is
/// needed again within max_reuse_distance elements; small ones stay for ever.
class Zero3 : public Zero {
 public:
  Zero3(Run& r, const Tape& tape, const ParallelSetup& setup, Environment& env, TensorList& trainable) : Zero(setup), tape_(tape) {
    r.begin_op("DeepSpeedZeroOptimizer_Stage3");
    find_units(setup);
    std::int64_t elements = 0;
    for (ValueId id : tape.parameters) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (!v.is_tensor() || seen_.count(v.tensor().get())) continue;
      const Tensor& p = v.tensor();
      seen_.insert(p.get());
      dtype_ = p->dtype;
      elements = checked_add(elements, p->numel());
      Unit& u = units_[unit_of(tape.values[static_cast<std::size_t>(id.index)].name)];
      u.elements += p->numel();
      u.parameters.push_back(p);
      of_[p.get()] = static_cast<std::size_t>(&u - units_.data());
      if (p->numel() > persistence_threshold) r.free_memory(p);
      Tensor shard = r.empty({(p->numel() + ranks_ - 1) / ranks_}, p->dtype, Category::parameter);
      r.label(shard, p->name);
      r.set_reason(shard, fmt::format("partition of a parameter, 1/{}", ranks_));
      shards_.push_back(std::move(shard));
    }
    make_master(r, elements, trainable);
    partition_ = r.empty({(elements + ranks_ - 1) / ranks_}, dtype_, Category::gradient);
    r.label(partition_, "ZeRO gradient partition");
    r.set_reason(partition_, "flat gradients of this rank, kept for the whole run");
    std::int64_t after = 0;
    for (std::size_t u = units_.size(); u-- > 0;) {
      units_[u].stays = 2 * after <= max_reuse_distance;
      after += units_[u].elements;
    }
    units_.back().stays = true;
  }

  void begin_forward(Run& r, Environment&, bool) override { gather(r, units_.back()); }
  void before(Run& r, Environment&, std::int32_t call) override {
    if (const auto it = enter_.find(call); it != enter_.end()) gather(r, units_[it->second]);
  }
  void after(Run& r, Environment& env, std::int32_t call) override {
    const auto it = leave_.find(call);
    if (it == leave_.end()) return;
    Unit& u = units_[it->second];
    if (!u.stays || !r.grad_mode) release(r, u);
    if (!r.grad_mode) return;
    const std::size_t unit = it->second;
    for (ValueId id : tape_.calls[static_cast<std::size_t>(call)].outputs) {
      const Value& v = id.valid() ? env.values[static_cast<std::size_t>(id.index)] : Value();
      if (v.is_tensor() && v.tensor() && v.tensor()->grad_fn)
        v.tensor()->grad_fn->pre_hooks.push_back([this, unit](Run& run) { gather(run, units_[unit]); });
    }
  }
  void accumulated(Run& r, TensorBody& leaf) override {
    leaf.grad.reset();
    const auto it = of_.find(&leaf);
    if (it == of_.end()) return;
    Unit& u = units_[it->second];
    if (++u.done < u.parameters.size()) return;
    release(r, u);
  }
  void finished(Run& r) override {
    Zero::finished(r);
    for (Unit& u : units_) {
      release(r, u);
      u.done = 0;
    }
  }

 private:
  struct Unit {
    std::string path;
    TensorList parameters;
    std::int64_t elements = 0;
    std::size_t done = 0;
    bool stays = false, gathered = false;
  };

  void find_units(const ParallelSetup& setup) {
    const ScopeSpans spans(tape_);
    std::set<std::int32_t> scopes;
    if (!setup.blocks.empty() || !repeated_modules(tape_).empty())
      scopes = outermost(tape_, named_modules(tape_, setup.blocks.empty() ? std::vector<std::string>{"blocks"} : setup.blocks, "--blocks"));
    std::map<std::int32_t, std::int32_t> ordered;
    for (std::int32_t s : scopes)
      if (spans.first[static_cast<std::size_t>(s)] >= 0) ordered[spans.first[static_cast<std::size_t>(s)]] = s;
    for (const auto& [first, s] : ordered) {
      enter_[first] = units_.size();
      leave_[spans.last[static_cast<std::size_t>(s)]] = units_.size();
      units_.emplace_back();
      units_.back().path = tape_.scopes[static_cast<std::size_t>(s)].path;
    }
    units_.emplace_back();
  }

  std::size_t unit_of(const std::string& name) const {
    for (std::size_t u = 0; u + 1 < units_.size(); ++u)
      if (name.starts_with(units_[u].path + ".")) return u;
    return units_.size() - 1;
  }

  /// A flat buffer for the all-gather, from which each weight is then put together.
  void gather(Run& r, Unit& u) {
    if (u.gathered) return;
    u.gathered = true;
    r.begin_op("ZeRO-3: all-gather " + u.path);
    std::int64_t elements = 0;
    for (const Tensor& p : u.parameters)
      if (p->numel() > persistence_threshold) elements = checked_add(elements, p->numel());
    if (elements == 0) return;
    Tensor flat = r.empty({(elements + ranks_ - 1) / ranks_ * ranks_}, dtype_, Category::temporary);
    for (const Tensor& p : u.parameters)
      if (p->numel() > persistence_threshold) r.take_memory(p, Category::parameter);
  }

  void release(Run& r, Unit& u) {
    if (!u.gathered) return;
    u.gathered = false;
    for (const Tensor& p : u.parameters)
      if (p->numel() > persistence_threshold) r.free_memory(p);
  }

  const Tape& tape_;
  std::vector<Unit> units_;  ///< the last holds what lies outside of blocks
  std::map<std::int32_t, std::size_t> enter_, leave_;
  std::map<const TensorBody*, std::size_t> of_;
  std::set<const TensorBody*> seen_;
  TensorList shards_;
};

}  // namespace

std::unique_ptr<ModelWrapper> wrap_zero(Run& run, const Tape& tape, const ParallelSetup& setup, Environment& env, TensorList& trainable) {
  if (setup.sharding == Sharding::zero3) return std::make_unique<Zero3>(run, tape, setup, env, trainable);
  return std::make_unique<Zero12>(run, setup, trainable);
}

}  // namespace memplan
