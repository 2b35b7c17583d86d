// Choosing between values: where, clamp, masks; and the fused sums addcmul, addcdiv, lerp.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

/// A number is made a scalar on the device first.
/// result_type of what is given: numbers count where no tensor is of their kind.
DType type_of_sides(const Args& a, const Tensor& x, const Tensor& y) {
  if (x && y) return op::result_type({x, y});
  const auto is_real = [&](std::size_t i) { return std::holds_alternative<double>(a[i].v); };
  const auto is_bool = [&](std::size_t i) { return std::holds_alternative<bool>(a[i].v); };
  if (const Tensor t = x ? x : y; t) return is_real(x ? 2 : 1) && !is_floating(t->dtype) ? DType::float32 : t->dtype;
  return is_real(1) || is_real(2) ? DType::float32 : is_bool(1) && is_bool(2) ? DType::boolean : DType::int64;
}

ValueList run_where(Run& r, Args& a) {
  const Row& row = a.row();
  Tensor scalar;
  Tensor sides[2];
  for (int i = 0; i < 2; ++i)
    if (a[i + 1].is_tensor()) sides[i] = a.tensor(i + 1);
  const DType dtype = type_of_sides(a, sides[0], sides[1]);
  for (Tensor& t : sides)
    if (!t) t = r.empty({}, dtype);
  Tensor y;
  {
    // The side of the lesser dtype is cast within the op; numbers on the host and of no dimension are not.
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor cast[2];
    for (int i = 0; i < 2; ++i) cast[i] = sides[i]->on_host ? sides[i] : op::to(r, sides[i], dtype);
    y = op::pointwise(r, {a.tensor(0), cast[0], cast[1]}, dtype);
  }
  row.derivatives.record(r, {{"condition", a.tensor(0)}, {"self", sides[0]}, {"other", sides[1]}}, {y});
  sides[1].reset();
  sides[0].reset();
  return {y};
}

constexpr const char* clamp_formula =
    "self: two ? where((self >= min).logical_and_(self <= max), grad, scalar_like(grad)) : where(self >= bound, grad, "
    "scalar_like(grad))";

Bindings clamp_bounds(const Row& row, const Args& a) {
  Bindings bound = constants_of(row, a);
  const bool two = a.size() > 2 && !a.none(1) && !a.none(2);
  bound.set("two", two);
  bound.set("bound", two ? Value() : a[a.none(1) && a.size() > 2 ? 2 : 1]);
  return bound;
}

ValueList run_clamp(Run& r, Args& a) {
  const Row& row = a.row();
  Tensor x = a.tensor(0);
  const std::string_view name = a.op().substr(0, a.op().find('.'));
  const bool in_place = name.back() == '_';
  std::vector<std::pair<std::string_view, Tensor>> inputs{{"self", x}};
  TensorList operands{x};
  for (std::size_t i = 1; i < a.size(); ++i)
    if (a[i].is_tensor()) {
      inputs.emplace_back(row.arguments[i], a.tensor(i));
      operands.push_back(a.tensor(i));
    }
  Bindings bounds = clamp_bounds(row, a);
  if (in_place) {
    row.derivatives.record_in_place(r, inputs, std::move(bounds));
    return {x};
  }
  Tensor y = op::pointwise(r, operands, op::result_type(operands));
  row.derivatives.record(r, inputs, {y}, std::move(bounds));
  return {y};
}

ValueList run_masked_fill(Run& r, Args& a) {
  const Row& row = a.row();
  Tensor x = a.tensor(0), mask = a.tensor(1), value = a[2].is_tensor() ? a.tensor(2) : Tensor();
  const std::vector<std::pair<std::string_view, Tensor>> inputs{{"self", x}, {"mask", mask}, {"value", value}};
  if (a.op().find("fill_") != std::string_view::npos) {
    row.derivatives.record_in_place(r, inputs);
    return {x};
  }
  // It fills a clone, which is contiguous whatever the input is.
  Tensor y =
      x->on_host ? op::pointwise(r, {x, mask}, x->dtype) : r.empty(op::broadcast(x->sizes, mask->sizes), x->dtype);
  row.derivatives.record(r, inputs, {y});
  return {y};
}

/// Every element gets a new value: the gradient of the former ones is zeros, that of a value their sum.
ValueList run_overwrite(Run& r, Args& a) {
  Tensor x = a.tensor(0), value = a[1].is_tensor() ? a.tensor(1) : Tensor();
  r.rebase(x, r.record({x, value}, {}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) out[0] = op::zeros_like(r, g[0]);
    if (n.wants(1)) out[1] = op::sum(r, g[0], {}, false);
    return out;
  }));
  return {x};
}

void add_fused(OpTable& t, std::initializer_list<const char*> names, const char* schema, int operands,
               const char* derivatives) {
  for (const char* n : names) {
    const bool in_place =
        std::string_view(n).find("_.") != std::string_view::npos || n[std::string_view(n).size() - 1] == '_';
    Row& row = t.add(n, schema, in_place ? run_elementwise_ : run_elementwise);
    row.operands = operands;
    row.derivatives = Derivatives(derivatives);
  }
}

}  // namespace

void register_selection(OpTable& t) {
  for (const char* n : {"aten::where.self", "aten::where.ScalarSelf", "aten::where.ScalarOther", "aten::where.Scalar"})
    t.add(n, "condition, self, other", run_where).derivatives =
        Derivatives("self: where(condition, grad, 0) | other: where(condition, 0, grad)");
  for (const char* n : {"aten::clamp", "aten::clip", "aten::clamp.Tensor", "aten::clamp_", "aten::clip_",
                        "aten::clamp_.Tensor", "aten::clip_.Tensor"})
    t.add(n, "self, min=None, max=None", run_clamp).derivatives = Derivatives(clamp_formula);
  for (const char* n : {"aten::clamp_min", "aten::clamp_max", "aten::clamp_min_", "aten::clamp_max_"})
    t.add(n, "self, bound", run_clamp).derivatives = Derivatives(clamp_formula);
  t.add("aten::clamp_min.Tensor", "self, min", run_clamp).derivatives = Derivatives(
      "self: where(self >= min, grad, scalar_like(grad)) | min: where(self < min, grad, scalar_like(grad))");
  t.add("aten::clamp_max.Tensor", "self, max", run_clamp).derivatives = Derivatives(
      "self: where(self <= max, grad, scalar_like(grad)) | max: where(self > max, grad, scalar_like(grad))");
  for (const char* n : {"aten::masked_fill.Scalar", "aten::masked_fill.Tensor", "aten::masked_fill_.Scalar",
                        "aten::masked_fill_.Tensor"})
    t.add(n, "self, mask, value", run_masked_fill).derivatives = Derivatives("self: masked_fill(grad, mask, 0)");
  const char* fused = "self, tensor1, tensor2, value=1";
  add_fused(t, {"aten::addcmul", "aten::addcmul_"}, fused, 3,
            "self: grad | tensor1: grad * (tensor2 * value) | tensor2: grad * (tensor1 * value)");
  add_fused(
      t, {"aten::addcdiv", "aten::addcdiv_"}, fused, 3,
      "self: grad | tensor1: grad * (value / tensor2) | tensor2: -grad * (value * tensor1 / (tensor2 * tensor2))");
  add_fused(t, {"aten::lerp.Scalar", "aten::lerp_.Scalar"}, "self, end, weight", 2,
            "self: grad * (1 - weight) | end: grad * weight");
  add_fused(t, {"aten::lerp.Tensor", "aten::lerp_.Tensor"}, "self, end, weight", 3,
            "self: grad * (1 - weight) | end: grad * weight | weight: grad * (end - self)");
  for (const char* n : {"aten::fill_.Scalar", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_"})
    t.add(n, "self, a=None, b=None", run_overwrite);
  t.add("aten::fill_.Tensor", "self, value", run_overwrite);
}

}  // namespace memplan
