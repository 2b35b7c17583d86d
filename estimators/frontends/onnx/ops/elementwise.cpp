// Ops that work element by element.
#include <cmath>
#include <limits>

#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/frontends/onnx/tensors.h"

namespace memplan::onnx_format {

namespace {

// --- what the outputs are like -------------------------------------------------------------------------------------

double unary_value(std::string_view op, double x) {
  if (op == "Sqrt") return std::sqrt(x);
  if (op == "Neg") return -x;
  if (op == "Abs") return std::fabs(x);
  if (op == "Floor") return std::floor(x);
  if (op == "Ceil") return std::ceil(x);
  if (op == "Round") return std::nearbyint(x);
  if (op == "Reciprocal") return 1 / x;
  if (op == "Exp") return std::exp(x);
  if (op == "Log") return std::log(x);
  if (op == "Not") return x == 0;
  return std::nan("");
}

void infer_same(const At& at, std::vector<Fact>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = at.sizes(0);
}

void infer_unary(const At& at, std::vector<Fact>& out) {
  infer_same(at, out);
  const Fact& x = at.in(0);
  if (!x.contents) return;
  const std::string_view op = at.node.op_type;
  Contents c;
  c.floating = x.contents->floating;
  for (double v : x.contents->floats) c.floats.push_back(unary_value(op, v));
  for (std::int64_t v : x.contents->integers) {
    const double r = unary_value(op, static_cast<double>(v));
    if (!std::isfinite(r) || std::fabs(r) > 9e15) return;
    c.integers.push_back(static_cast<std::int64_t>(r));
  }
  out[0].contents = std::move(c);
}

void infer_predicate(const At& at, std::vector<Fact>& out) {
  infer_unary(at, out);
  out[0].dtype = DType::boolean;
  if (at.node.op_type != "Not") out[0].contents.reset();
}

bool is_comparison(std::string_view op) {
  return op == "Equal" || op == "Greater" || op == "Less" || op == "GreaterOrEqual" || op == "LessOrEqual" ||
         op == "And" || op == "Or" || op == "Xor";
}

/// None where the operation is not followed on numbers.
std::optional<double> real_value(std::string_view op, double a, double b) {
  if (op == "Add" || op == "Sum") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Pow") return std::pow(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  if (op == "Equal") return a == b;
  if (op == "Greater") return a > b;
  if (op == "Less") return a < b;
  if (op == "GreaterOrEqual") return a >= b;
  if (op == "LessOrEqual") return a <= b;
  return std::nullopt;
}

std::optional<std::int64_t> integer_value(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (op == "Add" || op == "Sum") return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "Sub") return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "Mul") return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "Div")
    return b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min()) ? std::nullopt : std::optional(a / b);
  if (op == "Mod") {
    if (b == 0 || b == -1) return b == 0 ? std::nullopt : std::optional<std::int64_t>(0);
    r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  if (op == "And") return a != 0 && b != 0;
  if (op == "Or") return a != 0 || b != 0;
  if (op == "Xor") return (a != 0) != (b != 0);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  if (const auto v = real_value(op, static_cast<double>(a), static_cast<double>(b)); v && std::fabs(*v) < 9e15)
    return static_cast<std::int64_t>(*v);
  return std::nullopt;
}

std::optional<Contents> combine(std::string_view op, const Fact& a, const Fact& b, const Sizes& sizes) {
  if (!a.contents || !b.contents || count_of(sizes) > max_followed) return std::nullopt;
  const auto ia = broadcast_index(*a.sizes, sizes), ib = broadcast_index(*b.sizes, sizes);
  Contents out;
  const bool floating = a.contents->floating || b.contents->floating;
  out.floating = floating && !is_comparison(op);
  for (std::size_t k = 0; k < ia.size(); ++k) {
    if (floating) {
      const auto v = real_value(op, a.contents->number(ia[k]), b.contents->number(ib[k]));
      if (!v) return std::nullopt;
      out.floating ? out.floats.push_back(*v) : out.integers.push_back(*v != 0);
    } else {
      const auto v = integer_value(op, a.contents->integers[ia[k]], b.contents->integers[ib[k]]);
      if (!v) return std::nullopt;
      out.integers.push_back(*v);
    }
  }
  return out;
}

/// Add, Sub …, and the variadic Sum, Mean, Min, Max.
void infer_binary(const At& at, std::vector<Fact>& out) {
  if (!at.has(0)) return;
  Fact sum = at.in(0);
  const bool legacy_axis = at.opset < 7 && at.attribute("broadcast");  // broadcasting by attribute, before opset 7
  for (std::size_t i = 1; i < at.node.inputs.size(); ++i) {
    const Fact& b = at.in(i);
    Fact next;
    next.dtype = sum.dtype;
    if (sum.sizes && b.sizes) {
      next.sizes = legacy_axis ? *sum.sizes : broadcast(*sum.sizes, *b.sizes, at.node);
      if (!legacy_axis) next.contents = combine(at.node.op_type, sum, b, *next.sizes);
    }
    sum = std::move(next);
  }
  if (is_comparison(at.node.op_type)) sum.dtype = DType::boolean;
  if (at.node.op_type == "Mean") sum.contents.reset();
  out[0] = std::move(sum);
}

void infer_where(const At& at, std::vector<Fact>& out) {
  const Fact &c = at.in(0), &x = at.in(1), &y = at.in(2);
  out[0].dtype = x.dtype;
  if (!c.sizes || !x.sizes || !y.sizes) return;
  out[0].sizes = broadcast(broadcast(*c.sizes, *x.sizes, at.node), *y.sizes, at.node);
  if (!c.contents || !x.contents || !y.contents || x.contents->floating != y.contents->floating ||
      count_of(*out[0].sizes) > max_followed)
    return;
  const auto ic = broadcast_index(*c.sizes, *out[0].sizes), ix = broadcast_index(*x.sizes, *out[0].sizes),
             iy = broadcast_index(*y.sizes, *out[0].sizes);
  Contents r;
  r.floating = x.contents->floating;
  for (std::size_t k = 0; k < ic.size(); ++k) {
    const bool yes = c.contents->number(ic[k]) != 0;
    if (r.floating)
      r.floats.push_back(yes ? x.contents->floats[ix[k]] : y.contents->floats[iy[k]]);
    else
      r.integers.push_back(yes ? x.contents->integers[ix[k]] : y.contents->integers[iy[k]]);
  }
  out[0].contents = std::move(r);
}

void infer_identity(const At& at, std::vector<Fact>& out) { out[0] = at.in(0); }

void infer_cast(const At& at, std::vector<Fact>& out) {
  out[0].sizes = at.sizes(0);
  if (at.node.op_type == "CastLike") {
    out[0].dtype = at.in(1).dtype;
  } else if (const Attribute* to = at.attribute("to")) {
    // Before opset 6 the type is a string.
    if (const auto* n = std::get_if<std::int64_t>(to))
      out[0].dtype = dtype_of(static_cast<int>(*n));
    else if (const auto* s = std::get_if<std::string>(to))
      out[0].dtype = *s == "FLOAT"   ? DType::float32
                     : *s == "INT64" ? DType::int64
                     : *s == "BOOL"  ? DType::boolean
                                     : DType::int32;
  }
  if (at.in(0).contents && out[0].dtype) out[0].contents = converted(*at.in(0).contents, *out[0].dtype);
}

// --- which calls stand for them -------------------------------------------------------------------------------------

struct Pair {
  std::string_view onnx;
  const char* aten;
};

constexpr Pair unary_ops[] = {
    {"Relu", "relu"},
    {"Sigmoid", "sigmoid"},
    {"Tanh", "tanh"},
    {"Erf", "erf"},
    {"Exp", "exp"},
    {"Log", "log"},
    {"Sqrt", "sqrt"},
    {"Reciprocal", "reciprocal"},
    {"Abs", "abs"},
    {"Neg", "neg"},
    {"Floor", "floor"},
    {"Ceil", "ceil"},
    {"Round", "round"},
    {"Sign", "sign"},
    {"Sin", "sin"},
    {"Cos", "cos"},
    {"Tan", "tan"},
    {"Asin", "asin"},
    {"Acos", "acos"},
    {"Atan", "atan"},
    {"Sinh", "sinh"},
    {"Cosh", "cosh"},
    {"Asinh", "asinh"},
    {"Acosh", "acosh"},
    {"Atanh", "atanh"},
    {"Softplus", "softplus"},
    {"HardSwish", "hardswish"},
    {"HardSigmoid", "hardsigmoid"},
    {"Mish", "mish"},
    {"Swish", "silu"},
    {"QuickGelu", "silu"},
    {"Not", "logical_not"},
    {"IsNaN", "isnan"},
    {"IsInf", "isinf"},
    {"BitwiseNot", "bitwise_not"},
    {"Det", "det"},
};

constexpr Pair binary_ops[] = {
    {"Add", "add.Tensor"},
    {"Sub", "sub.Tensor"},
    {"Mul", "mul.Tensor"},
    {"Div", "div.Tensor"},
    {"Sum", "add.Tensor"},
    {"Max", "maximum"},
    {"Min", "minimum"},
    {"Mean", "add.Tensor"},
    {"And", "logical_and"},
    {"Or", "logical_or"},
    {"Xor", "logical_xor"},
    {"Equal", "eq"},
    {"Greater", "gt"},
    {"Less", "lt"},
    {"GreaterOrEqual", "ge"},
    {"LessOrEqual", "le"},
    {"BitwiseAnd", "bitwise_and.Tensor"},
    {"BitwiseOr", "bitwise_or.Tensor"},
    {"BitwiseXor", "bitwise_xor.Tensor"},
};

template <std::size_t N>
const char* aten_of(const Pair (&table)[N], std::string_view op) {
  for (const Pair& p : table)
    if (p.onnx == op) return p.aten;
  return "";
}

bool lower_unary(const At& at, Emit& e) {
  e.call_for(at, std::string("aten::") + aten_of(unary_ops, at.node.op_type), {{e.tensor(at.id(0))}});
  return true;
}

/// A chain of two-operand calls, as Python writes a + b + c.
bool lower_binary(const At& at, Emit& e) {
  if (at.node.inputs.empty()) return false;
  std::string op = std::string("aten::") + aten_of(binary_ops, at.node.op_type);
  const bool compare = op == "aten::eq" || op == "aten::gt" || op == "aten::lt" || op == "aten::ge" || op == "aten::le";
  if (at.node.op_type == "Div" && at.in(0).dtype && !is_floating(*at.in(0).dtype)) op = "aten::floor_divide";
  if (at.node.inputs.size() == 1) {
    e.bind(at.node.outputs[0], e.tensor(at.id(0)));
    return true;
  }
  Arg left = e.operand(at.id(0));
  for (std::size_t i = 1; i < at.node.inputs.size(); ++i) {
    Arg right = e.operand(at.id(i));
    const bool left_number = !std::holds_alternative<ValueId>(left.value),
               right_number = !std::holds_alternative<ValueId>(right.value);
    if (left_number && right_number) left = {e.tensor(at.id(0))};
    std::string name = op;
    if (compare) name += right_number ? ".Scalar" : ".Tensor";
    if (left_number && !right_number) {
      // Python's reflected operators: 1 - x is rsub, 2 / x is reciprocal and a product, the others commute.
      if (op == "aten::sub.Tensor") {
        name = "aten::rsub.Scalar";
        std::swap(left, right);
      } else if (op == "aten::add.Tensor" || op == "aten::mul.Tensor") {
        std::swap(left, right);
      } else if (op == "aten::div.Tensor") {
        const double number = at.number(i - 1).value_or(0);
        if (number == 1) {
          e.call_for(at, "aten::reciprocal", {right});
          return true;
        }
        right = {e.call("aten::reciprocal", {right})};
        name = "aten::mul.Tensor";
        std::swap(left, right);
      } else {
        left = {e.tensor(at.id(i - 1))};
      }
    }
    if (right_number && (name == "aten::maximum" || name == "aten::minimum")) {
      name = name == "aten::maximum" ? "aten::clamp_min" : "aten::clamp_max";
    } else if (right_number && name.find("logical") != std::string::npos) {
      right = {e.tensor(at.id(i))};
    }
    const bool last = i + 1 == at.node.inputs.size() && at.node.op_type != "Mean";
    if (last)
      e.call_for(at, name, {std::move(left), std::move(right)});
    else
      left = {e.call(name, {std::move(left), std::move(right)})};
  }
  if (at.node.op_type == "Mean")
    e.call_for(at, "aten::div.Tensor", {std::move(left), {static_cast<std::int64_t>(at.node.inputs.size())}});
  return true;
}

bool lower_mod(const At& at, Emit& e) {
  e.call_for(at, at.integer("fmod", 0) ? "aten::fmod.Tensor" : "aten::remainder.Tensor",
             {{e.tensor(at.id(0))}, e.operand(at.id(1))});
  return true;
}

bool lower_shift(const At& at, Emit& e) {
  e.call_for(
      at,
      at.text("direction", "LEFT") == "LEFT" ? "aten::bitwise_left_shift.Tensor" : "aten::bitwise_right_shift.Tensor",
      {{e.tensor(at.id(0))}, e.operand(at.id(1))});
  return true;
}

bool lower_pow(const At& at, Emit& e) {
  if (const auto x = at.number(1); x && is_python_number(e.facts, at.id(1))) {
    // x ** 2 and torch.pow(x, 2) take a Python integer.
    const Arg exponent = *x == std::floor(*x) && std::fabs(*x) < 1e9 ? Arg{static_cast<std::int64_t>(*x)} : Arg{*x};
    e.call_for(at, "aten::pow.Tensor_Scalar", {{e.tensor(at.id(0))}, exponent});
  } else if (is_python_number(e.facts, at.id(0))) {
    e.call_for(at, "aten::pow.Scalar", {e.operand(at.id(0)), {e.tensor(at.id(1))}});
  } else {
    e.call_for(at, "aten::pow.Tensor_Tensor", {{e.tensor(at.id(0))}, {e.tensor(at.id(1))}});
  }
  return true;
}

bool lower_where(const At& at, Emit& e) {
  const bool x = is_python_number(e.facts, at.id(1)), y = is_python_number(e.facts, at.id(2));
  const char* op = x && y ? "aten::where.Scalar"
                   : x    ? "aten::where.ScalarSelf"
                   : y    ? "aten::where.ScalarOther"
                          : "aten::where.self";
  e.call_for(at, op, {{e.tensor(at.id(0))}, e.operand(at.id(1)), e.operand(at.id(2))});
  return true;
}

bool lower_clip(const At& at, Emit& e) {
  auto bound = [&](std::size_t input, const char* name) -> Arg {
    if (at.has(input)) return e.operand(at.id(input));
    return at.attribute(name) ? Arg{at.real(name, 0)} : Arg{};
  };
  const Arg low = bound(1, "min"), high = bound(2, "max");
  const Arg x{e.tensor(at.id(0))};
  const auto lo = at.has(1) ? at.number(1) : at.attribute("min") ? std::optional(at.real("min", 0)) : std::nullopt;
  const auto hi = at.has(2) ? at.number(2) : at.attribute("max") ? std::optional(at.real("max", 0)) : std::nullopt;
  if (lo == 0.0 && hi == 6.0)
    e.call_for(at, "aten::hardtanh", {x, {0.0}, {6.0}});  // nn.ReLU6
  else
    e.call_for(at,
               std::holds_alternative<ValueId>(low.value) || std::holds_alternative<ValueId>(high.value)
                   ? "aten::clamp.Tensor"
                   : "aten::clamp",
               {x, low, high});
  return true;
}

bool lower_gelu(const At& at, Emit& e) {
  const bool tanh = at.text("approximate", "none") == "tanh" || at.node.op_type == "FastGelu";
  Kwargs kwargs;
  if (tanh) kwargs.push_back({"approximate", {std::string("tanh")}});
  Arg x{e.tensor(at.id(0))};
  if (at.has(1)) x = {e.call("aten::add.Tensor", {x, {e.tensor(at.id(1))}})};  // com.microsoft::BiasGelu, FastGelu
  e.call_for(at, "aten::gelu", {x}, std::move(kwargs));
  return true;
}

bool lower_activation(const At& at, Emit& e) {
  const std::string& op = at.node.op_type;
  const Arg x{e.tensor(at.id(0))};
  if (op == "LeakyRelu")
    e.call_for(at, "aten::leaky_relu", {x, {at.real("alpha", 0.01)}});
  else if (op == "Elu")
    e.call_for(at, "aten::elu", {x, {at.real("alpha", 1.0)}});
  else if (op == "Celu")
    e.call_for(at, "aten::celu", {x, {at.real("alpha", 1.0)}});
  else if (op == "Selu")
    e.call_for(at, "aten::elu",
               {x, {at.real("alpha", 1.6732632)}, {at.real("gamma", 1.050701)}});  // selu is elu with two constants
  else if (op == "ThresholdedRelu")
    e.call_for(at, "aten::threshold", {x, {at.real("alpha", 1.0)}, {0.0}});
  else if (op == "PRelu")
    e.call_for(at, "aten::prelu", {x, {e.tensor(at.id(1))}});
  else if (op == "Shrink")
    e.call_for(at, "aten::softshrink", {x, {at.real("lambd", 0.5)}});
  else if (op == "Softsign")
    e.call_for(at, "aten::div.Tensor",
               {x, {e.call("aten::add.Tensor", {{e.call("aten::abs", {x})}, {std::int64_t{1}}})}});
  else
    return false;
  return true;
}

bool lower_cast(const At& at, Emit& e) {
  const Fact& out = e.facts[at.node.outputs[0]];
  const ValueId x = e.tensor(at.id(0));
  if (!out.dtype) return false;
  if (out.dtype == at.in(0).dtype) {
    const OwnCast own = e.own_casts.empty() ? OwnCast::none : e.own_casts[static_cast<std::size_t>(at.node.outputs[0])];
    if (own == OwnCast::none)
      e.bind(at.node.outputs[0], x);  // x.to(x.dtype) returns x
    else if (own == OwnCast::up)
      e.call_for(at, "aten::to.dtype", {{x}, {DType::float32}});
    else
      e.call_for(at, "memplan::to_default_dtype", {{x}});
    return true;
  }
  // A boolean mask goes to the dtype of what it is multiplied with or added to.
  if (at.in(0).dtype == DType::boolean && out.dtype == DType::float32)
    e.call_for(at, "memplan::to_default_dtype", {{x}});
  else
    e.call_for(at, "aten::to.dtype", {{x}, {*out.dtype}});
  return true;
}

bool lower_same(const At& at, Emit& e) {
  e.bind(at.node.outputs[0], e.tensor(at.id(0)));
  return true;
}

constexpr OpRow rows[] = {
    {"Relu", infer_unary, lower_unary},
    {"Sigmoid", infer_same, lower_unary},
    {"Tanh", infer_same, lower_unary},
    {"Erf", infer_same, lower_unary},
    {"Exp", infer_unary, lower_unary},
    {"Log", infer_unary, lower_unary},
    {"Sqrt", infer_unary, lower_unary},
    {"Reciprocal", infer_unary, lower_unary},
    {"Abs", infer_unary, lower_unary},
    {"Neg", infer_unary, lower_unary},
    {"Floor", infer_unary, lower_unary},
    {"Ceil", infer_unary, lower_unary},
    {"Round", infer_unary, lower_unary},
    {"Sign", infer_same, lower_unary},
    {"Sin", infer_same, lower_unary},
    {"Cos", infer_same, lower_unary},
    {"Tan", infer_same, lower_unary},
    {"Asin", infer_same, lower_unary},
    {"Acos", infer_same, lower_unary},
    {"Atan", infer_same, lower_unary},
    {"Sinh", infer_same, lower_unary},
    {"Cosh", infer_same, lower_unary},
    {"Asinh", infer_same, lower_unary},
    {"Acosh", infer_same, lower_unary},
    {"Atanh", infer_same, lower_unary},
    {"Softplus", infer_same, lower_unary},
    {"HardSwish", infer_same, lower_unary},
    {"HardSigmoid", infer_same, lower_unary},
    {"Mish", infer_same, lower_unary},
    {"Swish", infer_same, lower_unary},
    {"com.microsoft::QuickGelu", infer_same, lower_unary},
    {"Not", infer_predicate, lower_unary},
    {"IsNaN", infer_predicate, lower_unary},
    {"IsInf", infer_predicate, lower_unary},
    {"BitwiseNot", infer_same, lower_unary},
    {"LeakyRelu", infer_same, lower_activation},
    {"Elu", infer_same, lower_activation},
    {"Celu", infer_same, lower_activation},
    {"Selu", infer_same, lower_activation},
    {"ThresholdedRelu", infer_same, lower_activation},
    {"PRelu", infer_same, lower_activation},
    {"Shrink", infer_same, lower_activation},
    {"Softsign", infer_same, lower_activation},
    {"Gelu", infer_same, lower_gelu},
    {"com.microsoft::Gelu", infer_same, lower_gelu},
    {"com.microsoft::FastGelu", infer_same, lower_gelu},
    {"com.microsoft::BiasGelu", infer_same, lower_gelu},
    {"Add", infer_binary, lower_binary, all_inputs},
    {"Sub", infer_binary, lower_binary, all_inputs},
    {"Mul", infer_binary, lower_binary, all_inputs},
    {"Div", infer_binary, lower_binary, all_inputs},
    {"Sum", infer_binary, lower_binary, all_inputs},
    {"Mean", infer_binary, lower_binary, all_inputs},
    {"Max", infer_binary, lower_binary, all_inputs},
    {"Min", infer_binary, lower_binary, all_inputs},
    {"And", infer_binary, lower_binary},
    {"Or", infer_binary, lower_binary},
    {"Xor", infer_binary, lower_binary},
    {"Equal", infer_binary, lower_binary, all_inputs},
    {"Greater", infer_binary, lower_binary, all_inputs},
    {"Less", infer_binary, lower_binary, all_inputs},
    {"GreaterOrEqual", infer_binary, lower_binary, all_inputs},
    {"LessOrEqual", infer_binary, lower_binary, all_inputs},
    {"BitwiseAnd", infer_binary, lower_binary, all_inputs},
    {"BitwiseOr", infer_binary, lower_binary, all_inputs},
    {"BitwiseXor", infer_binary, lower_binary, all_inputs},
    {"Mod", infer_binary, lower_mod, bits({1})},
    {"BitShift", infer_binary, lower_shift, bits({1})},
    {"Pow", infer_binary, lower_pow, all_inputs},
    {"Where", infer_where, lower_where, bits({1, 2})},
    {"Clip", infer_same, lower_clip, bits({1, 2})},
    {"Cast", infer_cast, lower_cast},
    {"CastLike", infer_cast, lower_cast},
    {"Identity", infer_identity, lower_same},
};

}  // namespace

Rows elementwise_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
