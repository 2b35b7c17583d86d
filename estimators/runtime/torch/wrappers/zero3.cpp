// DeepSpeedZeroOptimizer_Stage3 of DeepSpeed 0.19.8 (deepspeed/runtime/zero/stage3.py, parameter_offload.py): every
// parameter is a shard of 1/N, and whole only around the modules that use it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "estimators/runtime/torch/wrappers/zero.h"
#include "estimators/runtime/torch/wrappers/zero3_coordinator.h"
#include "estimators/schedule/limits.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/module_calls.h"

namespace memplan {

namespace {

constexpr std::int32_t reduce_stream = 2;
constexpr std::int64_t persistence_threshold = 100'000, sub_group_size = 1'000'000'000,
                       norm_buffer = 250'000'000;  // elements

class Zero3 : public Zero {
 public:
  explicit Zero3(const WrapContext& c) : Zero(c), tape_(c.tape), modules_(c.tape) {
    const Tape& tape = c.tape;
    find_parameters(c.env);
    weights_.own.resize(modules_.calls.size() + 1);
    weights_.identity.resize(modules_.calls.size() + 1);
    std::map<std::string, std::size_t> first_call;
    for (std::size_t m = 0; m < modules_.calls.size(); ++m) {
      const std::string& path = tape.scopes[static_cast<std::size_t>(modules_.calls[m].scope)].path;
      weights_.identity[m] = first_call.try_emplace(path, m).first->second;
      if (const auto it = by_owner_.find(path); it != by_owner_.end() && !path.empty()) weights_.own[m] = it->second;
    }
    root_ = modules_.calls.size();
    weights_.identity[root_] = root_;
    if (const auto it = by_owner_.find(std::string()); it != by_owner_.end()) weights_.own[root_] = it->second;
    partition(c.run, c.trainable);
  }

  // --- hooks of the modules ----------------------------------------------------------------------------------------

  void begin_forward(Run& r, Environment&, bool) override {
    weights_.reset_step(r);
    weights_.enter(r, root_, true);
  }
  void end_forward(Run& r, Environment& env) override { leave(r, env, root_, tape_.outputs); }

  void before(Run& r, Environment& env, std::int32_t call, Lasting lasting) override {
    const auto it = modules_.begin_at.find(call);
    if (it == modules_.begin_at.end()) return;
    for (std::size_t m : it->second) {
      if (modules_.calls[m].last < lasting.from || modules_.calls[m].last >= lasting.below) continue;
      watch_inputs(r, env, m);
      weights_.enter(r, m, true);
    }
  }
  void after(Run& r, Environment& env, std::int32_t call) override {
    const auto it = modules_.end_at.find(call);
    if (it == modules_.end_at.end()) return;
    for (std::size_t m : it->second) {
      for (auto& [index, value] : outside_[m]) {
        Value& inside = env.values[static_cast<std::size_t>(index)];
        if (!inside.is_none()) inside = std::move(value);  // else the name went out of scope in there
      }
      outside_.erase(m);
      leave(r, env, m, modules_.calls[m].outputs);
    }
  }

  // --- gradients ---------------------------------------------------------------------------------------------------

  /// __add_grad_to_ipg_bucket
  void accumulated(Run& r, TensorBody& leaf) override {
    const auto it = index_.find(&leaf);
    if (it == index_.end()) return;
    const std::int64_t numel = weights_.params[it->second].numel;
    if (filled_ + numel > bucket_ && filled_ > 0) reduce(r);
    if (filled_ + numel <= bucket_) {
      Tensor view = r.alias(bucket_buffer_, leaf.sizes, contiguous_strides(leaf.sizes), filled_);
      leaf.grad = std::move(view);
    }
    filled_ += numel;
    waiting_.push_back(it->second);
  }

  void finished(Run&) override {}

  void end_backward(Run& r) override {
    r.begin_op("ZeRO-3: reduce the rest of the gradients");
    reduce(r);
    weights_.release_leftovers(r);
    Zero::end_backward(r);
  }

  // --- the step ----------------------------------------------------------------------------------------------------

  void begin_optimizer(Run& r) override {
    if (group_ == 0) {
      r.begin_op("ZeRO-3: partition all parameters");
      weights_.release_all(r);
      r.begin_op("ZeRO-3: norm of the gradients");
      if (!optimizer_on_host_)
        for (const ZeroParam& p : weights_.params)
          if (p.trains) norm_of(r, p.shard_numel);
      keep_norm(r, DType::float64);
    }
    if (group_ >= masters_.size()) return;
    r.begin_op("ZeRO-3: gradients of the partition in fp32");
    const Tensor& master = masters_[group_];
    Tensor flat = flattened(r, master->numel(), dtype_, group_sizes_[group_]);
    master->grad = dtype_ == DType::float32 && flat ? flat
                   : dtype_ == DType::float32       ? gradients_
                                                    : r.empty(master->sizes, DType::float32, Category::gradient);
    r.label(master->grad, "ZeRO fp32 gradient partition");
    r.set_category(master->grad, Category::gradient);
  }

  bool end_optimizer(Run& r) override {
    if (group_ < masters_.size()) masters_[group_]->grad.reset();
    if (++group_ < masters_.size()) return true;
    group_ = 0;
    r.begin_op("ZeRO-3: gather what persists");
    weights_.gather_persisting(r);
    return false;
  }

 private:
  void find_parameters(const Environment& env) {
    for (ValueId id : tape_.parameters) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (!v.is_tensor()) continue;
      const Tensor& whole = v.tensor();
      auto [it, fresh] = index_.try_emplace(whole.get(), weights_.params.size());
      if (fresh) {
        ZeroParam p;
        p.whole = whole;
        p.numel = whole->numel();
        p.shard_numel = (p.numel + ranks_ - 1) / ranks_;
        p.bytes = whole->storage->bytes;
        p.persists = p.numel <= persistence_threshold;
        p.trains = whole->requires_grad_leaf;
        dtype_ = whole->dtype;
        weights_.params.push_back(std::move(p));
      }
      const std::string& name = tape_.values[static_cast<std::size_t>(id.index)].name;
      const auto dot = name.rfind('.');
      add_to(dot == std::string::npos ? std::string() : name.substr(0, dot), it->second);
    }
    // A tied weight has two owners, and a file may name only one: whoever uses it outside of its module owns it, too.
    for (const Call& call : tape_.calls)
      for_each_value(call, [&](ValueId id) {
        const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
        if (v.kind != ValueKind::parameter || !env.values[static_cast<std::size_t>(id.index)].is_tensor() ||
            call.scope < 0)
          return;
        const std::string& path = tape_.scopes[static_cast<std::size_t>(call.scope)].path;
        const auto dot = v.name.rfind('.');
        const std::string owner = dot == std::string::npos ? std::string() : v.name.substr(0, dot);
        const bool inside = owner.empty() || path == owner || path.starts_with(owner + ".");
        if (!inside) add_to(path, index_.at(env.values[static_cast<std::size_t>(id.index)].tensor().get()));
      });
    for (auto& [path, own] : by_owner_) std::sort(own.begin(), own.end());
  }
  void add_to(const std::string& path, std::size_t parameter) {
    auto& own = by_owner_[path];
    if (std::find(own.begin(), own.end(), parameter) == own.end()) own.push_back(parameter);
  }

  /// Every parameter becomes a shard. Returns those of parameters that train.
  TensorList shard_parameters(Run& r) {
    TensorList passing;
    for (ZeroParam& p : weights_.params) {
      if (!parameters_on_host_) {
        Tensor shard = r.empty({p.shard_numel}, p.whole->dtype, Category::parameter);
        r.label(shard, p.whole->name);
        r.set_reason(shard, fmt::format("shard of a parameter, 1/{}", ranks_));
        (p.trains ? passing : frozen_shards_).push_back(std::move(shard));
      }
      r.free_memory(p.whole);
    }
    return passing;
  }

  /// Elements of each group of shards that is updated together.
  std::vector<std::int64_t> sub_groups() {
    std::vector<std::int64_t> groups;
    std::int64_t in_group = 0;
    std::size_t count = 0;
    for (const ZeroParam& p : weights_.params)
      if (p.trains) {
        in_group += p.shard_numel;
        ++count;
        if (in_group < sub_group_size) continue;
        groups.push_back(in_group);
        group_sizes_.push_back(count);
        in_group = 0;
        count = 0;
      }
    if (in_group > 0) groups.push_back(in_group), group_sizes_.push_back(count);
    return groups;
  }

  /// fp32 weights of each group; the optimizer updates them.
  void make_masters(Run& r, const std::vector<std::int64_t>& groups) {
    for (std::int64_t n : groups) {
      Tensor converted = dtype_ == DType::float32 || (optimizer_on_host_ && parameters_on_host_)
                             ? Tensor()
                             : r.empty({n}, DType::float32, Category::temporary);
      if (optimizer_on_host_) continue;
      Tensor master = r.empty({n}, DType::float32, Category::optimizer_state);
      master->requires_grad_leaf = true;
      r.label(master, "ZeRO fp32 partition");
      r.set_reason(master, fmt::format("fp32 weights of this rank, 1/{}", ranks_));
      masters_.push_back(std::move(master));
    }
  }

  /// Parameters become shards, those that train in one flat buffer; then fp32 weights, buckets and gradients.
  void partition(Run& r, TensorList& trainable) {
    r.begin_op("DeepSpeedZeroOptimizer_Stage3");
    TensorList passing = shard_parameters(r);
    weights_.ranks = ranks_;
    weights_.overlap = overlap_;
    weights_.on_host = parameters_on_host_;
    if (!optimizer_on_host_) found_inf_ = r.empty({1}, DType::boolean, Category::temporary);  // inf_or_nan_tracker
    const std::vector<std::int64_t> groups = sub_groups();
    const std::int64_t elements = std::accumulate(groups.begin(), groups.end(), std::int64_t{0});
    trainable.clear();
    if (elements == 0) return;
    for (Tensor& t : passing) t.reset();
    if (!parameters_on_host_) {
      r.empty_cache();  // defragment: shards go to the host and come back side by side
      shards_ = r.empty({elements}, dtype_, Category::parameter);
      r.label(shards_, "ZeRO-3 shards of all parameters");
      r.set_reason(shards_, fmt::format("1/{} of every parameter", ranks_));
    }
    make_masters(r, groups);
    trainable = masters_;
    if (!optimizer_on_host_)
      Tensor zeros = r.empty({*std::max_element(groups.begin(), groups.end())}, DType::float32, Category::temporary);
    bucket_buffer_ = r.empty({bucket_}, dtype_, Category::temporary);
    r.label(bucket_buffer_, "ZeRO reduce bucket");
    r.set_reason(bucket_buffer_, "reduce_bucket_size elements, kept for the whole run");
    if (!optimizer_on_host_) {
      gradients_ = r.empty({elements}, dtype_, Category::gradient);
      r.label(gradients_, "ZeRO gradient partition");
      r.set_reason(gradients_, "gradients of this rank's shards, kept for the whole run");
    }
    weights_.gather_each(r);  // create_reduce_and_remove_grad_hooks
  }

  /// Forward hooks after a module: its parameters may go, and a hook stands before its outputs' backward.
  void leave(Run& r, Environment& env, std::size_t m, const std::vector<ValueId>& outputs) {
    weights_.leave(r, m);
    if (!r.grad_mode) return;
    for (ValueId id : outputs) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (!v.is_tensor() || !v.tensor() || !v.tensor()->grad_fn) continue;
      auto& hooks = v.tensor()->grad_fn->pre_hooks;
      hooks.insert(hooks.begin(), [this, m](Run& run) { weights_.enter(run, m, false); });
    }
  }

  /// PostBackwardFunctionModule: when the gradients of a module's inputs are there, its parameters may go.
  void watch_inputs(Run& r, Environment& env, std::size_t m) {
    if (!r.grad_mode || weights_.own[m].empty()) return;
    auto remaining = std::make_shared<int>(0);
    for (ValueId id : modules_.calls[m].inputs) {
      Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (!v.is_tensor() || !v.tensor() || !v.tensor()->requires_grad()) continue;
      ++*remaining;
      outside_[m].emplace_back(id.index, v);
      Tensor inside = r.detach(v.tensor());
      inside->is_view = v.tensor()->is_view;
      r.record(TensorList{v.tensor()}, TensorList{inside}, [this, m, remaining](Run& run, Node&, TensorList& grads) {
        if (--*remaining == 0) weights_.backward_over(run, m);
        return grads;
      });
      v = Value(inside);
    }
  }

  // --- gradients ---------------------------------------------------------------------------------------------------

  /// reduce_scatter_coalesced, then partition_grads.
  void reduce(Run& r) {
    if (waiting_.empty()) return;
    ScopedValue<std::int32_t> stream(r.stream, overlap_ ? reduce_stream : 0);
    std::sort(waiting_.begin(), waiting_.end());
    Tensor flat;
    if (waiting_.size() > 1 || weights_.params[waiting_[0]].numel % ranks_ != 0) {
      // A piece of padding for every rank behind the end of a parameter: too many are refused before they are made.
      std::size_t pieces = r.schedule.events.size();
      for (std::size_t i : waiting_) {
        const ZeroParam& p = weights_.params[i];
        pieces += static_cast<std::size_t>(ranks_ - p.numel / std::max<std::int64_t>(p.shard_numel, 1));
      }
      if (pieces > most_events) fail_most_events();
      const auto padding = static_cast<std::int32_t>(r.schedule.allocations.size());
      std::int64_t elements = 0;
      for (std::int64_t rank = 0; rank < ranks_; ++rank)
        for (std::size_t i : waiting_) {
          const ZeroParam& p = weights_.params[i];
          const std::int64_t missing =
              p.shard_numel - std::clamp<std::int64_t>(p.numel - rank * p.shard_numel, 0, p.shard_numel);
          if (missing > 0) r.take_piece(missing, dtype_);
          elements += p.shard_numel;
        }
      const auto below = static_cast<std::int32_t>(r.schedule.allocations.size());
      flat = r.empty({elements}, dtype_, Category::temporary);
      r.label(flat, "ZeRO-3: gradients of a bucket, interleaved for the reduce-scatter");
      r.give_pieces(padding, below);
    }
    for (std::size_t i : waiting_) {
      ZeroParam& p = weights_.params[i];
      if (optimizer_on_host_) {
        Tensor mine = r.empty({p.shard_numel}, dtype_, Category::temporary);
        for (std::int64_t n = p.shard_numel; n > 0; n -= norm_buffer) norm_of(r, std::min(n, norm_buffer));
        norms_[i] = r.empty({}, DType::float64, Category::temporary);
        Tensor wide =
            dtype_ == DType::float32 ? Tensor() : r.empty({p.shard_numel}, DType::float32, Category::temporary);
      }
      p.whole->grad.reset();
    }
    waiting_.clear();
    filled_ = 0;
  }

  const Tape& tape_;
  const ModuleCalls modules_;
  std::size_t root_ = 0;
  ZeroCoordinator weights_;
  std::map<const TensorBody*, std::size_t> index_;
  std::map<std::string, std::vector<std::size_t>> by_owner_;
  std::map<std::size_t, std::vector<std::pair<std::int32_t, Value>>>
      outside_;  ///< the caller's own tensors while a module runs on aliases

  Tensor shards_, bucket_buffer_, gradients_, found_inf_;
  TensorList masters_, frozen_shards_;
  std::vector<std::size_t> group_sizes_;
  std::size_t group_ = 0;
  std::vector<std::size_t> waiting_;
  std::int64_t filled_ = 0;
  std::map<std::size_t, Tensor> norms_;
};

}  // namespace

/// DeepSpeed's ZeRO stage 3 (stage3.py, partition_parameters.py, partitioned_param_coordinator.py of DeepSpeed 0.19.8),
/// like stages 1 and 2.
std::unique_ptr<ModelWrapper> wrap_zero3(const WrapContext& c) { return std::make_unique<Zero3>(c); }

}  // namespace memplan
