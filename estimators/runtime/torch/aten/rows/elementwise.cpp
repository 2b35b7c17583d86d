// Functions of one or two tensors, element by element. Forward: one TensorIterator output. Backward: the formulas of
// derivatives.yaml and FunctionsManual.cpp of PyTorch 2.11, which also say what autograd keeps.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

Tensor operand(Run& r, const Value& v) {
  if (v.is_tensor()) return v.tensor();
  return op::number(r, std::holds_alternative<double>(v.v));
}

}  // namespace

Bindings constants_of(const Row& row, const Args& args) {
  Bindings bound;
  for (std::size_t i = 0; i < row.arguments.size(); ++i)
    if (!args[i].is_tensor() && row.derivatives.reads(row.arguments[i])) bound.set(row.arguments[i], args[i]);
  return bound;
}

ValueList run_elementwise(Run& r, Args& a) {
  const Row& row = a.row();
  std::vector<std::pair<std::string_view, Tensor>> inputs;
  TensorList operands;
  for (int i = 0; i < row.operands; ++i) {
    if (a[i].is_none() && i > 0) continue;  // an optional operand (clamp's bounds)
    if (a[i].is_none()) a.tensor(0);        // the first is needed: says so
    operands.push_back(operand(r, a[i]));
    if (a[i].is_tensor()) inputs.emplace_back(row.arguments[i], operands.back());
  }
  DType dtype = row.result == ResultType::boolean ? DType::boolean : op::result_type(operands);
  if (row.result == ResultType::floating && !is_floating(dtype) && !is_complex(dtype)) dtype = DType::float32;
  const bool magnitude = is_complex(dtype) && row.name == "aten::abs";
  Tensor y = op::pointwise(r, operands,
                           !magnitude                   ? dtype
                           : dtype == DType::complex128 ? DType::float64
                                                        : DType::float32);
  // unary_op_impl_with_complex_to_float_out: computed as complex numbers, whose real parts are copied.
  if (magnitude) Tensor whole = op::pointwise(r, operands, dtype);
  row.derivatives.record(r, inputs, {y}, constants_of(row, a));
  return {y};
}

ValueList run_elementwise_(Run& r, Args& a) {
  const Row& row = a.row();
  Tensor x = a.tensor(0);
  std::vector<std::pair<std::string_view, Tensor>> inputs;
  for (int i = 0; i < row.operands; ++i)
    if (a[i].is_tensor()) inputs.emplace_back(row.arguments[i], a.tensor(i));
  for (const auto& [name, t] : inputs)
    if (t->rank() > 0 && !(op::broadcast(x->sizes, t->sizes) == x->sizes))
      fail_input("a tensor does not fit the one that it is written into", row.name,
                 "the model may fix a dimension that you changed");
  row.derivatives.record_in_place(r, inputs, constants_of(row, a));
  return {x};
}

namespace {

struct Unary {
  const char* name;
  const char* derivative;  ///< of "self"
  ResultType result = ResultType::floating;
  const char* in_place = nullptr;  ///< where the in-place op has a formula of its own
};

constexpr ResultType same = ResultType::same;

// The kernel's first operand decides in which order the strides of the gradient run: that is the gradient that comes
// in, but for threshold and leaky_relu (native/Activation.cpp).
constexpr Unary unaries[] = {
    {"relu", "threshold_backward(result, grad)", same},
    {"gelu", "gelu_backward(grad, self)"},
    {"silu", "silu_backward(grad, self)"},
    {"mish", "mish_backward(grad, self)"},
    {"hardswish", "hardswish_backward(grad, self)"},
    {"hardsigmoid", "hardsigmoid_backward(grad, self)"},
    {"hardtanh", "hardtanh_backward(grad, self)", same},
    {"leaky_relu", "leaky_relu_backward(self, grad)", ResultType::floating, "leaky_relu_backward(result, grad)"},
    {"elu", "elu_backward(grad, self)", ResultType::floating, "elu_backward(grad, result)"},
    {"celu", "elu_backward(grad, self)", ResultType::floating, "elu_backward(grad, result)"},
    {"selu", "elu_backward(grad, self)", ResultType::floating, "elu_backward(grad, result)"},
    {"softplus", "softplus_backward(grad, self)"},
    {"softshrink", "softshrink_backward(grad, self)"},
    {"hardshrink", "hardshrink_backward(grad, self)"},
    {"threshold", "threshold_backward(self, grad)", same, "threshold_backward(result, grad)"},
    {"logit", "logit_backward(grad, self)"},
    {"sigmoid", "sigmoid_backward(grad, result)"},
    {"tanh", "tanh_backward(grad, result)"},
    {"exp", "grad * result"},
    {"exp2", "grad * result * 0.6931471805599453"},
    {"expm1", "grad * (result + 1)"},
    {"log", "grad / self"},
    {"log2", "grad / (self * 0.6931471805599453)"},
    {"log10", "grad / (self * 2.3025850929940456)"},
    {"log1p", "grad / (self + 1)"},
    {"sqrt", "grad / (2 * result)"},
    {"rsqrt", "-0.5 * grad * result.pow(3)"},
    {"reciprocal", "-grad * (result * result)"},
    {"sin", "grad * self.cos()"},
    {"cos", "grad * -self.sin()"},
    {"tan", "grad * (1 + result.pow(2))"},
    {"sinh", "grad * self.cosh()"},
    {"cosh", "grad * self.sinh()"},
    {"asin", "grad * (-self * self + 1).rsqrt()"},
    {"acos", "grad * -((-self * self + 1).rsqrt())"},
    {"atan", "grad / (self * self + 1)"},
    {"asinh", "grad * (self.pow(2) + 1).rsqrt()"},
    {"acosh", "grad * (self * self - 1).rsqrt()"},
    {"atanh", "grad * 1 / (1 - self.pow(2))"},
    {"abs", "grad * self.sgn()", same},
    {"erf", "1.1283791670955126 * exp(-(self.pow(2))) * grad"},
    {"erfc", "-1.1283791670955126 * exp(-(self.pow(2))) * grad"},
    {"erfinv", "0.886226925452758 * exp(self.erfinv().pow(2)) * grad"},
    {"sinc",
     "self_pi = self * 3.141592653589793; self_squared_pi = self * self * 3.141592653589793; "
     "out = grad * ((self_pi * self_pi.cos() - self_pi.sin()) / self_squared_pi); "
     "where(self_squared_pi == 0.0, scalar_like(grad), out)"},
    {"nan_to_num", "grad * isfinite(self)", same},
    {"lgamma", "grad * digamma(self)"},
    {"digamma", "grad * kernel(self)"},  // polygamma(1, self)
    {"i0", "grad * kernel(self)"},       // special_i1(self)
    {"deg2rad", "kernel(grad)"},
    {"rad2deg", "kernel(grad)"},
    {"floor", "zeros_like(grad)", same},
    {"ceil", "zeros_like(grad)", same},
    {"round", "zeros_like(grad)", same},
    {"trunc", "zeros_like(grad)", same},
    {"sign", "zeros_like(grad)", same},
    {"sgn", "keep(self, result)", same},  // the gradient is a zero tensor without memory
    {"frac", "grad", same},
};

struct BinaryFormula {
  const char* name;
  const char* derivatives;
  ResultType result = ResultType::same;
};

constexpr BinaryFormula binaries[] = {
    {"maximum",
     "self: where(self == other, grad / 2, grad).masked_fill_(self < other, 0) | other: where(self == other, grad / 2, "
     "grad).masked_fill_(self > other, 0)"},
    {"minimum",
     "self: where(self == other, grad / 2, grad).masked_fill_(self > other, 0) | other: where(self == other, grad / 2, "
     "grad).masked_fill_(self < other, 0)"},
    {"fmax",
     "self: grad.masked_fill((self >= other).logical_or_(other.isnan()).logical_not_(), 0) | other: "
     "grad.masked_fill((self >= other).logical_or_(other.isnan()), 0)"},
    {"fmin",
     "self: grad.masked_fill((self <= other).logical_or_(other.isnan()).logical_not_(), 0) | other: "
     "grad.masked_fill((self <= other).logical_or_(other.isnan()), 0)"},
    {"atan2",
     "self, other: denom = self * self + other * other; recip = denom.reciprocal().masked_fill_(denom == 0, 0); {grad "
     "* other * recip, grad * -self * recip}",
     ResultType::floating},
    {"hypot", "self: grad * self / result | other: grad * other / result", ResultType::floating},
    {"logaddexp", "self: grad / (1 + exp(other - self)) | other: grad / (1 + exp(self - other))", ResultType::floating},
    {"logaddexp2", "self: grad / (1 + power_of_two(other - self)) | other: grad / (1 + power_of_two(self - other))",
     ResultType::floating},
    {"xlogy.Tensor",
     "self: xlogy(grad, other).masked_fill((self == 0.0) & (other <= 0.0), 0.0) | other: grad * self / other",
     ResultType::floating},
    {"copysign.Tensor",
     "self: ratio = result / self; ratio.masked_fill_(self == 0, 0); grad * ratio | other: zeros_of(other_meta)",
     ResultType::floating},
    {"remainder.Tensor", "self: grad | other: -grad * kernel(self, other)"},
    {"fmod.Tensor", "self: grad | other: -grad * kernel(self, other)"},
    {"pow.Tensor_Tensor",
     "self: where(exponent == 0.0, scalar_like(grad), grad * (exponent * self.pow(exponent - 1))) | "
     "exponent: cond = logical_and(self == 0, exponent >= 0); grad * where(cond, scalar_like(grad), result * "
     "to_type_of(self, result).log())"},
};

/// isinf compares |x| with a number, isfinite also x with itself; both in plain ops.
ValueList run_isinf(Run& r, Args& a) {
  ScopedValue<bool> no_grad(r.grad_mode, false);
  Tensor x = a.tensor(0);
  if (!is_floating(x->dtype)) return {op::pointwise(r, {x}, DType::boolean)};
  Tensor magnitude = op::pointwise(r, {x}, x->dtype);
  return {op::pointwise(r, {magnitude}, DType::boolean)};
}

ValueList run_isfinite(Run& r, Args& a) {
  ScopedValue<bool> no_grad(r.grad_mode, false);
  Tensor x = a.tensor(0);
  if (!is_floating(x->dtype)) return {op::pointwise(r, {x}, DType::boolean)};
  Tensor magnitude = op::pointwise(r, {x}, x->dtype);
  Tensor finite = op::pointwise(r, {magnitude}, DType::boolean);
  Tensor number = op::pointwise(r, {x}, DType::boolean);
  return {op::pointwise(r, {finite, number}, DType::boolean)};
}

/// |self - other| <= atol + |rtol * other|, or equal; in plain ops.
ValueList run_isclose(Run& r, Args& a) {
  ScopedValue<bool> no_grad(r.grad_mode, false);
  Tensor x = a.tensor(0), y = a.tensor(1);
  Tensor close = op::pointwise(r, {x, y}, DType::boolean);
  if (!is_floating(x->dtype)) return {close};
  Tensor allowed;
  {
    Tensor scaled = op::pointwise(r, {y}, y->dtype), magnitude = op::pointwise(r, {scaled}, y->dtype);
    allowed = op::pointwise(r, {magnitude}, y->dtype);
  }
  Tensor error;
  {
    Tensor difference = op::pointwise(r, {x, y}, x->dtype);
    error = op::pointwise(r, {difference}, x->dtype);
  }
  Args finite_of(row_named(r, "aten::isfinite"), {error});
  Tensor finite = run_isfinite(r, finite_of)[0].tensor();
  { Tensor within = op::pointwise(r, {error, allowed}, DType::boolean); }
  return {close};
}

void add_boolean(OpTable& t, const std::string& name, int operands) {
  Row& row = t.add(name, operands == 2 ? "self, other" : "self", run_elementwise);
  row.operands = operands;
  row.result = ResultType::boolean;
}

/// The number is made a tensor on the device for the kernel.
ValueList run_pow_base(Run& r, Args& a) {
  const Row& row = a.row();
  Tensor x = a.tensor(1);
  Tensor y = op::pointwise(r, {op::number(r, std::holds_alternative<double>(a[0].v)), x},
                           op::result_type({op::number(r, true), x}));
  { Tensor base = r.empty({}, DType::float64); }
  row.derivatives.record(r, {{"exponent", x}}, {y}, constants_of(row, a));
  return {y};
}

ValueList run_positive(Run& r, Args& a) { return {op::view(r, a.tensor(0), a.tensor(0)->sizes)}; }

ValueList run_log_sigmoid(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = op::pointwise(r, {x}, x->dtype);  // the kernel's second output is empty on CUDA
  row_named(r, "aten::log_sigmoid").derivatives.record(r, {{"self", x}}, {y});
  return {y};
}

/// rrelu in training draws a slope for every element and keeps them.
ValueList run_rrelu(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  if (!a.boolean(3)) {
    ValueList args{x};
    return call_op(r, "aten::leaky_relu", args);
  }
  Tensor noise = r.empty_like(x), y = r.empty_like(x);
  row_named(r, "aten::rrelu").derivatives.record(r, {{"self", x}, {"noise", noise}}, {y});
  return {y};
}

}  // namespace

void register_elementwise(OpTable& t) {
  for (const Unary& u : unaries) {
    const std::string name = std::string("aten::") + u.name;
    const char* schema = "self, a=None, b=None, c=None, approximate=None";
    Row& row = t.add(name, schema, run_elementwise);
    row.result = u.result;
    row.derivatives = Derivatives(std::string("self: ") + u.derivative);
    Row& in_place = t.add(name + "_", schema, run_elementwise_);
    in_place.result = u.result;
    in_place.derivatives = u.in_place ? Derivatives(std::string("self: ") + u.in_place) : row.derivatives;
  }
  for (const char* suffix : {"", "_"})
    t.add(std::string("aten::relu6") + suffix, "self", [](Run& r, Args& a) -> ValueList {
      return call_op(r, a.op().back() == '_' ? "aten::hardtanh_" : "aten::hardtanh", {a[0]});
    });
  for (const BinaryFormula& b : binaries) {
    Row& row =
        t.add(std::string("aten::") + b.name,
              std::string_view(b.name).substr(0, 3) == "pow" ? "self, exponent" : "self, other", run_elementwise);
    row.operands = 2;
    row.result = b.result;
    row.derivatives = Derivatives(b.derivatives);
  }
  for (auto [alias, name] : {std::pair{"aten::max.other", "aten::maximum"}, {"aten::min.other", "aten::minimum"}}) {
    Row& row = t.add(alias, "self, other", run_elementwise);
    row.operands = 2;
    row.derivatives = t.find(name)->derivatives;
  }
  for (auto [alias, name] :
       {std::pair{"aten::remainder", "aten::remainder.Tensor"}, {"aten::fmod", "aten::fmod.Tensor"}}) {
    Row& row = t.add(alias, "self, other", run_elementwise);
    row.operands = 2;
    row.derivatives = t.find(name)->derivatives;
  }
  for (const char* n : {"aten::remainder.Scalar", "aten::fmod.Scalar"}) {
    Row& row = t.add(n, "self, other", run_elementwise);
    row.operands = 2;
    row.derivatives = Derivatives("self: grad");
  }
  Row& rounded = t.add("aten::div.Tensor_mode", "self, other, rounding_mode=None", [](Run& r, Args& a) -> ValueList {
    if (a.none(2)) return call_op(r, "aten::div.Tensor", {a[0], a[1]});
    return run_elementwise(r, a);
  });
  for (const char* n : {"aten::div.Scalar_mode"}) {
    Row& row = t.add(n, "self, other, rounding_mode=None", run_elementwise);
    row.operands = 2;
    row.derivatives = Derivatives("self: zeros_like(grad)");
  }
  rounded.operands = 2;
  rounded.derivatives = Derivatives("self: keep(other); zeros_like(grad) | other: keep(self, other); zeros_like(grad)");
  for (const char* base : {"eq", "ne", "lt", "le", "gt", "ge"})
    for (const char* overload : {".Tensor", ".Scalar", ""}) add_boolean(t, std::string("aten::") + base + overload, 2);
  for (const char* n : {"aten::logical_and", "aten::logical_or", "aten::logical_xor"}) add_boolean(t, n, 2);
  for (const char* n : {"aten::logical_not", "aten::isnan", "aten::signbit", "aten::isneginf", "aten::isposinf"})
    add_boolean(t, n, 1);
  t.add("aten::isinf", "self", run_isinf);
  t.add("aten::isfinite", "self", run_isfinite);
  for (const char* base : {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
                           "__and__", "__or__", "__xor__", "floor_divide", "gcd", "lcm", "heaviside", "nextafter"})
    for (const char* overload : {".Tensor", ".Scalar", ""})
      t.add(std::string("aten::") + base + overload, "self, other", run_elementwise).operands = 2;
  t.add("aten::bitwise_not", "self", run_elementwise);
  const char* power = "self: exponent == 0.0 ? zeros_like(self) : grad * (exponent * self.pow(exponent - 1))";
  for (auto [name, schema, kernel] : {std::tuple{"aten::pow.Tensor_Scalar", "self, exponent", &run_elementwise},
                                      {"aten::square", "self, exponent=2", &run_elementwise},
                                      {"aten::pow_.Scalar", "self, exponent", &run_elementwise_},
                                      {"aten::square_", "self, exponent=2", &run_elementwise_}}) {
    Row& row = t.add(name, schema, kernel);
    row.operands = 2;
    row.derivatives = Derivatives(power);
  }
  t.add("aten::pow.Scalar", "self, exponent", run_pow_base).derivatives =
      Derivatives("exponent: keep(exponent); grad * (result * kernel_number(self))");
  t.add("aten::positive", "self", run_positive);
  t.add("aten::isclose", "self, other, rtol=1e-5, atol=1e-8, equal_nan=False", run_isclose);
  t.add("aten::log_sigmoid", "self", run_log_sigmoid).derivatives =
      Derivatives("self: log_sigmoid_backward(grad, self)");
  t.add("aten::rrelu", "self, lower=0.125, upper=0.3333, training=False", run_rrelu).derivatives =
      Derivatives("self: rrelu_with_noise_backward(grad, self, noise)");
}

}  // namespace memplan
