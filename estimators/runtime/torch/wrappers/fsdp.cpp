// FSDP2 (fully_shard): shards that live for ever, weights that are gathered around each unit's forward and backward,
// gradients that are scattered. Names in comments are those of torch/distributed/fsdp/_fully_shard of PyTorch 2.11.
#include <fmt/format.h>

#include <deque>
#include <map>
#include <set>
#include <utility>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/wrappers/fsdp_units.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"
#include "estimators/setup/field.h"
#include "estimators/transforms/blocks.h"
#include "estimators/transforms/module_order.h"

namespace memplan {

namespace {

// Pools of the allocator: FSDPCommContext's streams. 0 computes; the collectives themselves allocate nothing.
constexpr std::int32_t copy_in_stream = 1, reduce_scatter_stream = 2, all_reduce_stream = 3;

using namespace fsdp_units;

class Fsdp : public ModelWrapper {
 public:
  Fsdp(Run& r, const Tape& tape, const ParallelSetup& setup, Environment& env, const PlaceValue& place,
       TensorList& trainable)
      : tape_(tape), setup_(setup), ranks_(shard_group(setup)) {
    refuse_unknown(r.profile);
    find_units();
    const auto order = module_order(tape);
    for (std::size_t u = 0; u < units_.size(); ++u) shard_unit(r, u, order, env, place);
    for (ValueId id : tape.parameters) {
      const auto it = shards_.find(id.index);
      if (it == shards_.end() || !it->second->requires_grad_leaf) continue;
      const auto same = [&](const Tensor& t) { return t.get() == it->second.get(); };
      if (std::none_of(trainable.begin(), trainable.end(), same)) trainable.push_back(it->second);
    }
    shards_.clear();
    for (std::size_t v = 0; v < visits_.size(); ++v) {
      enter_[visits_[v].first].push_back(v);
      leave_[visits_[v].last].push_back(v);
    }
    find_borders(tape_, visits_);
  }

  void begin_forward(Run& r, Environment& env, bool) override {
    cast_inputs(r, env, tape_.inputs);
    pre_forward(r, units_.back());
  }

  void end_forward(Run& r, Environment& env) override {
    post_forward(r, env, units_.back(), tape_.outputs);
    r.stream = 0;
    last_gather_.reset();  // flushed by the root: iter_forward_root
  }

  void before(Run& r, Environment& env, std::int32_t call, Lasting lasting) override {
    const auto it = enter_.find(call);
    if (it == enter_.end()) return;
    for (std::size_t v : it->second) {
      Visit& visit = visits_[v];
      if (visit.last < lasting.from || visit.last >= lasting.below) continue;
      open_.push_back(v);
      if (recomputed_in_backward(r, units_[visit.unit])) continue;
      r.scope = tape_.calls[static_cast<std::size_t>(call)].scope;
      visit.outside.clear();
      for (ValueId id : visit.inputs)
        visit.outside.emplace_back(id.index, env.values[static_cast<std::size_t>(id.index)]);
      cast_inputs(r, env, visit.inputs);
      pre_forward(r, units_[visit.unit]);
      register_post_backward(r, env, visit);
    }
  }

  void after(Run& r, Environment& env, std::int32_t call) override {
    const auto it = leave_.find(call);
    if (it == leave_.end()) return;
    for (std::size_t v : it->second) {
      Visit& visit = visits_[v];
      std::erase(open_, v);
      if (r.recomputing && units_[visit.unit].state == State::pre_backward) continue;
      for (auto& [index, value] : visit.outside) {
        Value& inside = env.values[static_cast<std::size_t>(index)];
        if (!inside.is_none()) inside = std::move(value);  // else the name went out of scope in there
        value = Value();
      }
      visit.outside.clear();
      post_forward(r, env, units_[visit.unit], visit.outputs);
      if (r.recomputing) last_gather_.reset();  // the first unit of a second run is its iter_forward_root
    }
  }

  CallHooks* again() override { return this; }

  void stopped() override {
    for (std::size_t v : open_) visits_[v].outside.clear();
    open_.clear();
  }

  void accumulated(Run&, TensorBody&) override {}

  void set_sync(bool sync) override { sync_ = sync; }

  void reduce_gradients(Run& r) override {
    sync_ = true;
    for (Unit& u : units_) u.state = State::idle;
    finished(r);
  }

  /// _root_post_backward_final_callback: the root first, then the blocks.
  void finished(Run& r) override {
    const auto finish = [&](Unit& u) {
      if (u.state != State::post_backward) post_backward(r, u);
      u.state = State::idle;
      if (!sync_) return;  // is_last_backward is false
      u.all_reduce_input.reset();
      u.gather_output.reset();
      u.forward_at.clear();
    };
    finish(units_.back());
    for (std::size_t i = 0; i + 1 < units_.size(); ++i) finish(units_[i]);
    if (!sync_) return;
    forward_order_.clear();
    reduce_scatter_inputs_.clear();
  }

 private:
  /// What the version of PyTorch has no name for.
  void refuse_unknown(const TorchProfile& profile) const {
    const auto refuse = [&](const char* what, Field field, const char* since) {
      fail(ErrorKind::usage, fmt::format("{} has no {}", profile.name(), what), setting(field),
           "leave it out, or use " + setting(Field::torch, since));
    };
    if (setup_.reduce_buffers > 1 && !profile.fsdp.reduce_buffers)
      refuse("set_reduce_scatter_max_input_buffers", Field::reduce_buffers, "2.13");
    if (setup_.keep_unsharded && !profile.fsdp.keep_unsharded)
      refuse("set_keep_unsharded_storage", Field::keep_unsharded, "2.15");
  }

  // --- units -------------------------------------------------------------------------------------------------------

  /// Blocks in the order of their first call, the root last.
  void find_units() {
    const std::vector<std::string> globs = setup_.blocks.empty() ? std::vector<std::string>{"blocks"} : setup_.blocks;
    std::set<std::int32_t> scopes;
    // A model without repeated blocks is one unit, unless blocks were asked for.
    if (!setup_.blocks.empty() || !repeated_modules(tape_).empty())
      scopes = outermost(tape_, named_modules(tape_, globs, Field::blocks));
    const ScopeSpans spans(tape_);
    std::vector<std::int32_t> ordered(scopes.begin(), scopes.end());
    std::erase_if(ordered, [&](std::int32_t s) { return spans.first[static_cast<std::size_t>(s)] < 0; });
    std::sort(ordered.begin(), ordered.end(), [&](auto a, auto b) {
      return spans.first[static_cast<std::size_t>(a)] < spans.first[static_cast<std::size_t>(b)];
    });
    for (std::int32_t s : ordered) {
      const std::string& path = tape_.scopes[static_cast<std::size_t>(s)].path;
      std::size_t unit = 0;
      while (unit < units_.size() && units_[unit].path != path) ++unit;
      if (unit == units_.size()) {
        units_.emplace_back();
        units_.back().path = path;
        units_.back().reshard_after_forward = setup_.reshard_after_forward;
      }
      Visit visit;
      visit.unit = unit;
      visit.first = spans.first[static_cast<std::size_t>(s)];
      visit.last = spans.last[static_cast<std::size_t>(s)];
      visits_.push_back(std::move(visit));
    }
    units_.emplace_back();
    units_.back().reshard_after_forward = false;  // auto: the root is needed again at once
  }

  std::size_t unit_of(const std::string& name) const {
    for (std::size_t u = 0; u + 1 < units_.size(); ++u)
      if (name.size() > units_[u].path.size() && name.starts_with(units_[u].path) && name[units_[u].path.size()] == '.')
        return u;
    return units_.size() - 1;
  }

  /// fully_shard(module): its parameters, then its buffers, move to the device; every parameter is cut; what was moved
  /// goes when the call returns.
  void shard_unit(Run& r, std::size_t u, const std::vector<ValueId>& order, Environment& env, const PlaceValue& place) {
    Unit& unit = units_[u];
    r.begin_op("fully_shard");
    TensorList moved;
    std::vector<ValueId> mine;
    for (ValueId id : order) {
      const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
      if (v.kind != ValueKind::parameter || v.same_storage_as.valid() || unit_of(v.name) != u) continue;
      moved.push_back(place(v));
      mine.push_back(id);
    }
    for (ValueId id : order) {
      const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
      if (v.kind != ValueKind::parameter && unit_of(v.name) == u)
        env.values[static_cast<std::size_t>(id.index)] = place(v);
    }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const TapeValue& v = tape_.values[static_cast<std::size_t>(mine[i].index)];
      const Tensor& full = moved[i];
      if (full->rank() == 0)
        fail(ErrorKind::usage, fmt::format("FSDP cannot shard the scalar parameter {}", v.name), setting(Field::fsdp),
             "make it a vector of one element");
      Param p;
      Dims shard = full->sizes;
      shard[0] = (shard[0] + ranks_ - 1) / ranks_;
      p.sharded = r.empty(shard, full->dtype, Category::parameter);
      p.sharded->requires_grad_leaf = v.requires_grad && (is_floating(full->dtype) || is_complex(full->dtype));
      p.padded = shard.product();
      r.label(p.sharded, v.name);
      r.set_reason(p.sharded, fmt::format("shard of a parameter, 1/{}", ranks_));
      shards_[mine[i].index] = p.sharded;
      // Its memory is taken when it is gathered; a padded buffer, of which the parameter is a view.
      const DType dtype = setup_.param_dtype && is_floating(full->dtype) ? *setup_.param_dtype : full->dtype;
      {
        ScopedValue<bool> phantom(r.phantom, true);
        p.unsharded = r.empty({checked_mul(p.padded, ranks_)}, dtype, Category::parameter);
      }
      p.unsharded->sizes = full->sizes;
      p.unsharded->strides = contiguous_strides(full->sizes);
      p.unsharded->requires_grad_leaf = p.sharded->requires_grad_leaf;
      p.unsharded->name = p.sharded->name;
      env.values[static_cast<std::size_t>(mine[i].index)] = p.unsharded;
      for (ValueId id : tape_.parameters) {
        const TapeValue& tied = tape_.values[static_cast<std::size_t>(id.index)];
        if (tied.same_storage_as.valid() && tied.same_storage_as == mine[i]) {
          env.values[static_cast<std::size_t>(id.index)] = p.unsharded;
          shards_[id.index] = p.sharded;
        }
      }
      unit.params.push_back(std::move(p));
    }
    for (Tensor& t : moved) t.reset();
  }

  // --- gathering ---------------------------------------------------------------------------------------------------

  /// foreach_all_gather: in forward and pre-backward on streams of its own.
  void unshard(Run& r, Unit& u) {
    if (u.gather_output || u.gathered || u.params.empty()) return;
    r.begin_op("FSDP::all_gather " + u.path);
    ScopedValue<std::int32_t> stream(r.stream, copy_in_stream);
    std::int64_t elements = 0, bytes = 0;
    bool same = true, cast = false;
    const DType dtype = u.params[0].unsharded->dtype;
    for (const Param& p : u.params) {
      elements = checked_add(elements, p.padded);
      bytes = checked_add(bytes, bytes_of(p.unsharded->dtype, p.padded).count);
      same = same && p.unsharded->dtype == dtype;
      cast = cast || p.unsharded->dtype != p.sharded->dtype;
    }
    Tensor flat = cast ? r.empty({elements}, dtype, Category::temporary) : Tensor();
    u.gather_output = same ? r.empty({checked_mul(elements, ranks_)}, dtype, Category::temporary)
                           : r.empty({checked_mul(bytes, ranks_)}, DType::uint8, Category::temporary);
    r.label(u.gather_output, "FSDP all-gather of " + (u.path.empty() ? "the root" : u.path));
  }

  /// wait_for_unshard: copies the flat buffer into each parameter's own.
  void wait_for_unshard(Run& r, Unit& u) {
    if (!u.gather_output) return;
    r.begin_op("FSDP::all_gather_copy_out " + u.path);
    // comm_ctx lets go of the previous unit's buffer here, but the function's own name for it lasts until it returns.
    Tensor previous;
    if (u.state == State::forward) previous = std::move(last_gather_);
    for (Param& p : u.params) {
      if (u.gathered_once && setup_.keep_unsharded) continue;
      r.take_memory(p.unsharded, Category::parameter);
      r.set_reason(p.unsharded, "gathered parameter");
    }
    u.gathered_once = true;
    { Tensor pointers = r.scratch(copy_out_pointers(r.profile.fsdp, r.device, u)); }
    u.gathered = true;
    if (u.state == State::forward) last_gather_ = u.gather_output;
    u.gather_output.reset();
  }

  void reshard(Run& r, Unit& u) {
    if (u.state == State::forward && !u.reshard_after_forward) return;
    if (!u.gathered) return;
    if (!setup_.keep_unsharded)
      for (Param& p : u.params) r.free_memory(p.unsharded);
    u.gathered = false;
  }

  // --- hooks -------------------------------------------------------------------------------------------------------

  void cast_inputs(Run& r, Environment& env, const std::vector<ValueId>& inputs) {
    if (!setup_.param_dtype) return;
    for (ValueId id : inputs) {
      Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (v.is_tensor() && v.tensor() && is_floating(v.tensor()->dtype) && v.tensor()->dtype != *setup_.param_dtype)
        v = Value(op::to(r, v.tensor(), *setup_.param_dtype));
    }
  }

  /// A second run whose unit is in its backward pass already: its weights are there, and inputs are not cast.
  bool recomputed_in_backward(Run& r, Unit& u) {
    if (!r.recomputing || u.state != State::pre_backward) return false;
    if (!u.gathered) {
      unshard(r, u);
      wait_for_unshard(r, u);
    }
    return true;
  }

  void pre_forward(Run& r, Unit& u) {
    u.state = State::forward;
    unshard(r, u);
    wait_for_unshard(r, u);
  }

  /// RegisterPostBackwardFunction: an identity on the inputs that want gradients.
  void register_post_backward(Run& r, Environment& env, Visit& visit) {
    if (!r.grad_mode) return;
    TensorList inputs, outputs;
    std::vector<std::size_t> places;
    for (ValueId id : visit.inputs) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (!v.is_tensor() || !v.tensor() || !v.tensor()->requires_grad()) continue;
      inputs.push_back(v.tensor());
      outputs.push_back(r.detach(v.tensor()));
      outputs.back()->is_view = v.tensor()->is_view;
      places.push_back(static_cast<std::size_t>(id.index));
    }
    if (inputs.empty()) return;
    r.begin_op("RegisterPostBackwardFunction");
    const std::size_t unit = visit.unit;
    r.record(inputs, outputs, [this, unit](Run& run, Node&, TensorList& grads) {
      post_backward(run, units_[unit]);
      return grads;
    });
    for (std::size_t i = 0; i < places.size(); ++i) env.values[places[i]] = Value(outputs[i]);
  }

  void post_forward(Run& r, Environment& env, Unit& u, const std::vector<ValueId>& outputs) {
    // What a checkpoint runs again in the backward pass (is_bw()) stays gathered until its own backward pass is over.
    if (!u.params.empty() && !r.recomputing) {
      reshard(r, u);
      u.forward_at.push_back(forward_order_.size());
      forward_order_.push_back(static_cast<std::size_t>(&u - units_.data()));
    }
    u.state = State::idle;
    if (!r.grad_mode) return;
    const auto unit = static_cast<std::size_t>(&u - units_.data());
    for (ValueId id : outputs) {
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (v.is_tensor() && v.tensor() && v.tensor()->grad_fn)
        v.tensor()->grad_fn->pre_hooks.push_back([this, unit](Run& run) { pre_backward(run, units_[unit]); });
    }
  }

  void pre_backward(Run& r, Unit& u) {
    if (u.state == State::pre_backward || u.params.empty()) return;
    u.state = State::pre_backward;
    unshard(r, u);
    wait_for_unshard(r, u);
    if (u.forward_at.empty()) return;
    const std::size_t at = u.forward_at.back();
    u.forward_at.pop_back();
    if (at == 0) return;
    Unit& next = units_[forward_order_[at - 1]];
    unshard(r, next);
  }

  /// foreach_reduce: gradients into one padded flat buffer, of which every rank gets its part.
  void post_backward(Run& r, Unit& u) {
    u.state = State::post_backward;
    for (Param& p : u.params)
      if (p.accumulated) p.unsharded->grad.reset();  // added to what earlier backward passes left
    if (!sync_) {
      for (Param& p : u.params)
        if (!p.accumulated && p.unsharded->grad && setup_.reduce_dtype &&
            *setup_.reduce_dtype != p.unsharded->grad->dtype) {
          p.accumulated = r.empty(p.unsharded->sizes, *setup_.reduce_dtype, Category::gradient);
          r.set_reason(p.accumulated, "whole gradient in the reduce dtype, until the last micro-batch");
          p.unsharded->grad.reset();
        }
      return;
    }
    TensorList grads;
    std::vector<Param*> with_grad;
    for (Param& p : u.params) {
      Tensor& grad = p.accumulated ? p.accumulated : p.unsharded->grad;
      if (!grad) continue;
      with_grad.push_back(&p);
      grads.push_back(std::exchange(grad, Tensor()));
    }
    reshard(r, u);
    if (grads.empty()) return;
    r.begin_op("FSDP::post_backward_reduce " + u.path);
    while (reduce_scatter_inputs_.size() >= static_cast<std::size_t>(setup_.reduce_buffers))
      reduce_scatter_inputs_.pop_front();
    u.all_reduce_input.reset();
    std::int64_t elements = 0;
    for (const Param* p : with_grad) elements = checked_add(elements, p->padded);
    const DType grad_dtype = grads[0]->dtype, reduce_dtype = setup_.reduce_dtype.value_or(grad_dtype),
                shard_dtype = with_grad[0]->sharded->dtype;
    reduce_scatter_inputs_.push_back(r.empty({checked_mul(elements, ranks_)}, reduce_dtype, Category::temporary));
    r.label(reduce_scatter_inputs_.back(), "FSDP reduce-scatter input of " + (u.path.empty() ? "the root" : u.path));
    { Tensor pointers = r.scratch(copy_in_pointers(r.profile.fsdp, with_grad, reduce_dtype)); }
    // A Python list lets go of its items from the last; the very last one is still bound to the loop's variable.
    const Tensor bound = grads.back();
    while (!grads.empty()) grads.pop_back();
    ScopedValue<std::int32_t> stream(r.stream, reduce_scatter_stream);
    Tensor output = r.empty({elements}, reduce_dtype, Category::gradient);
    const bool hybrid = ranks_ < setup_.data * setup_.context;
    if (hybrid) {
      u.all_reduce_input = output;
      r.stream = all_reduce_stream;
    }
    if (shard_dtype != reduce_dtype) output = r.empty({elements}, shard_dtype, Category::gradient);
    r.label(output, "gradients of " + (u.path.empty() ? "the root" : u.path));
    r.set_category(output, Category::gradient);
    r.set_reason(output, "sharded gradients, until zero_grad");
    std::int64_t at = 0;
    for (Param* p : with_grad) {
      if (!p->sharded->grad) p->sharded->grad = r.alias(output, p->sharded->sizes, p->sharded->strides, at);
      at += p->padded;
    }
  }

  const Tape& tape_;
  const ParallelSetup setup_;
  const std::int64_t ranks_;
  std::vector<Unit> units_;  ///< the root is the last
  std::vector<Visit> visits_;
  std::vector<std::size_t> open_;  ///< visits that have begun and are not over
  std::map<std::int32_t, std::vector<std::size_t>> enter_, leave_;
  std::map<std::int32_t, Tensor> shards_;
  bool sync_ = true;                          ///< requires_gradient_sync
  std::vector<std::size_t> forward_order_;    ///< comm_ctx.post_forward_order
  Tensor last_gather_;                        ///< comm_ctx.all_gather_state
  std::deque<Tensor> reduce_scatter_inputs_;  ///< comm_ctx.reduce_scatter_states, the oldest first
};

}  // namespace

// Of a model on the host; the environment gets the gathered parameters, `trainable` the shards.
std::unique_ptr<ModelWrapper> wrap_fsdp(const WrapContext& c) {
  return std::make_unique<Fsdp>(c.run, c.tape, c.ranks, c.env, c.place, c.trainable);
}

}  // namespace memplan
