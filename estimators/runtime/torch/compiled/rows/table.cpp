#include "estimators/runtime/torch/compiled/rows/table.h"

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
