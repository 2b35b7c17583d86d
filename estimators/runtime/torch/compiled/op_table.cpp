#include "estimators/runtime/torch/compiled/op_table.h"

#include <algorithm>

#include "estimators/base/error.h"

namespace memplan::compiled {

Var Items::var(std::size_t i) const {
  if (i >= items_.size() || !items_[i].var)
    fail_input("an argument is no tensor", std::string(op()),
               "the model file describes a call that PyTorch would refuse too");
  return items_[i].var;
}

Vars Items::vars(std::size_t i) const {
  Vars result;
  for (const Item& item : items_.at(i).list) result.push_back(item.var);
  return result;
}

prim::Number Items::scalar(std::size_t i) const {
  return {number(i), std::holds_alternative<double>(items_.at(i).constant.v)};
}

std::vector<std::int64_t> Items::integers(std::size_t i) const {
  if (none(i)) return {};
  if (!items_[i].is_list) return to_ints(items_[i].constant, op());
  std::vector<std::int64_t> result;
  for (const Item& item : items_[i].list) result.push_back(to_int(item.constant, op()));
  return result;
}

DType Items::dtype_or(std::size_t i, DType d) const {
  if (none(i)) return d;
  if (items_[i].var) return items_[i].var.t->dtype;
  const auto* dtype = std::get_if<DType>(&items_[i].constant.v);
  return dtype ? *dtype : d;
}

namespace {

Value on_paper(const Item& item) {
  if (item.var) return item.var.t;
  if (!item.is_list) return item.constant;
  ValueList list;
  for (const Item& i : item.list) list.push_back(on_paper(i));
  return list;
}

}  // namespace

std::vector<Value> Items::values() const {
  std::vector<Value> result;
  for (const Item& item : items_) result.push_back(on_paper(item));
  return result;
}

namespace {

/// Bytes that were taken and given back since an event.
std::int64_t transient(const Schedule& s, std::size_t since) {
  std::int64_t now = 0, most = 0;
  for (std::size_t i = since; i < s.events.size(); ++i) {
    const Event& e = s.events[i];
    if (e.kind == Event::Kind::empty_cache) continue;
    const std::int64_t bytes = s.allocations[static_cast<std::size_t>(e.allocation)].size.count;
    now += e.kind == Event::Kind::alloc ? bytes : -bytes;
    most = std::max(most, now);
  }
  return std::max<std::int64_t>(0, most - std::max<std::int64_t>(0, now));
}

}  // namespace

namespace {

Scratch scratch_as_laid(Tracer& t, const Items& items, bool channels_last) {
  Run& r = t.run;
  Scratch s;
  std::vector<Value> values = items.values();
  TensorList copies;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_tensor() || !values[i].tensor()) continue;
    const Tensor& like = values[i].tensor();
    const Dims strides = channels_last && like->rank() == 4 ? channels_last_strides(like->sizes) : like->strides;
    copies.push_back(r.alias(like, like->sizes, strides, 0));
    copies.back()->requires_grad_leaf = items.is_var(i) && items[i].var.wants();
    values[i] = copies.back();
  }
  ScopedValue<bool> grads(r.grad_mode, !t.in_backward());
  const std::size_t before = r.schedule.events.size();
  s.result = call_op(r, items.row(), std::move(values), {})[0].tensor();
  s.forward = transient(r.schedule, before);
  const NodeRef node = s.result->grad_fn;
  s.result = r.detach(s.result);
  if (!node || !node->backward) return s;
  ScopedValue<bool> none(r.grad_mode, false);
  TensorList gradients(static_cast<std::size_t>(node->outputs));
  gradients[0] = r.empty_like(s.result);
  const std::size_t began = r.schedule.events.size();
  const TensorList made = node->backward(r, *node.get(), gradients);
  s.backward = transient(r.schedule, began);
  return s;
}

}  // namespace

Scratch scratch_of(Tracer& t, const Items& items) { return scratch_as_laid(t, items, false); }

std::pair<Scratch, Scratch> scratch_of_layouts(Tracer& t, const Items& items) {
  const auto noting_in = [&](Notes& notes, bool channels_last) {
    std::swap(t.run.schedule.notes, notes);
    const Result<Scratch> made = catching([&] { return scratch_as_laid(t, items, channels_last); });
    std::swap(t.run.schedule.notes, notes);
    if (!made) throw Failure(made.error());
    return made.value();
  };
  return {noting_in(t.notes_as_laid, false), noting_in(t.notes_in_layout, true)};
}

const CompiledOps& compiled_ops() {
  static const CompiledOps ops = [] {
    CompiledOps all;
    for (const auto add : {add_pointwise_ops, add_activations, add_views, add_layers, add_norms, add_attention,
                           add_indexing, add_losses})
      add(all);
    return all;
  }();
  return ops;
}

}  // namespace memplan::compiled
