// The ATen ops of a tape in a compiled graph: one row per op, in rows/<family>.cpp, which emits its decomposition and
// leaves its derivative.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/compiled/autograd.h"

namespace memplan::compiled {

/// An argument: a tensor that is traced, a constant, or a list of such.
struct Item {
  Var var;
  Value constant = {};
  std::vector<Item> list = {};
  bool is_list = false;

  bool none() const { return !var && !is_list && constant.is_none(); }
};

/// The arguments of a call in the order of the op's schema, defaults filled in.
class Items {
 public:
  Items(const Row& row, std::vector<Item> items) : row_(row), items_(std::move(items)) {}

  std::string_view op() const { return row_.name; }
  const Row& row() const { return row_; }
  const std::vector<Item>& all() const { return items_; }
  const Item& operator[](std::size_t i) const { return items_.at(i); }
  std::size_t size() const { return items_.size(); }
  Var var(std::size_t i) const;  ///< Failure(input) where it is no tensor
  Var optional(std::size_t i) const { return i < items_.size() ? items_[i].var : Var{}; }
  Vars vars(std::size_t i) const;
  bool none(std::size_t i) const { return i >= items_.size() || items_[i].none(); }
  bool is_var(std::size_t i) const { return i < items_.size() && static_cast<bool>(items_[i].var); }
  double number(std::size_t i) const { return to_double(items_.at(i).constant, op()); }
  prim::Number scalar(std::size_t i) const;
  std::int64_t integer(std::size_t i) const { return to_int(items_.at(i).constant, op()); }
  std::int64_t integer_or(std::size_t i, std::int64_t d) const { return none(i) ? d : integer(i); }
  bool boolean(std::size_t i) const { return to_bool(items_.at(i).constant, op()); }
  std::vector<std::int64_t> integers(std::size_t i) const;
  Dims dims(std::size_t i) const { return Dims(integers(i)); }
  DType dtype_or(std::size_t i, DType d) const;
  /// With tensors as values on paper, for the eager row of the op.
  std::vector<Value> values() const;

 private:
  const Row& row_;
  std::vector<Item> items_;
};

/// What the eager kernels of a call take beside their results, forward and backward: the row is run on paper with
/// gradients.
struct Scratch {
  Tensor result;
  std::int64_t forward = 0, backward = 0;
};
Scratch scratch_of(Tracer&, const Items&);
/// Of a convolution as its tensors lie, and with those of four dimensions in channels_last.
std::pair<Scratch, Scratch> scratch_of_layouts(Tracer&, const Items&);

using CompiledOp = Vars (*)(Tracer&, const Items&);
/// By the op's name without namespace, overload and the mark of in-place ops.
using CompiledOps = std::map<std::string, CompiledOp, std::less<>>;
const CompiledOps& compiled_ops();

// One function per file of rows/.
void add_pointwise_ops(CompiledOps&);
void add_activations(CompiledOps&);
void add_views(CompiledOps&);
void add_layers(CompiledOps&);
void add_norms(CompiledOps&);
void add_attention(CompiledOps&);
void add_indexing(CompiledOps&);
void add_losses(CompiledOps&);

}  // namespace memplan::compiled
