// Ops of two or three operands that work element by element, and casts.
#include <cmath>
#include <limits>

#include "estimators/frontends/onnx/ops/common.h"
#include "estimators/frontends/onnx/ops/contents.h"
#include "estimators/frontends/onnx/table.h"
#include "estimators/frontends/onnx/tensors.h"

namespace memplan::onnx_format {

namespace {

// --- what the outputs are like -------------------------------------------------------------------------------------

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

std::optional<Contents> combine(std::string_view op, const Inferred& a, const Inferred& b, const Sizes& sizes) {
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
void infer_binary(const At& at, std::vector<Inferred>& out) {
  if (!at.has(0)) return;
  Inferred sum = at.in(0);
  const bool legacy_axis = at.opset < 7 && at.attribute("broadcast");  // broadcasting by attribute, before opset 7
  for (std::size_t i = 1; i < at.node.inputs.size(); ++i) {
    const Inferred& b = at.in(i);
    Inferred next;
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

void infer_where(const At& at, std::vector<Inferred>& out) {
  const Inferred &c = at.in(0), &x = at.in(1), &y = at.in(2);
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

void infer_identity(const At& at, std::vector<Inferred>& out) { out[0] = at.in(0); }

void infer_cast(const At& at, std::vector<Inferred>& out) {
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
    if (i + 1 == at.node.inputs.size() && at.node.op_type != "Mean") {
      e.call_for(at, name, {std::move(left), std::move(right)});
      return true;
    }
    left = {e.call(name, {std::move(left), std::move(right)})};
  }
  // Only a mean comes here: its sum is one step more.
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
  if (const auto x = at.number(1); x && is_python_number(e.inferred, at.id(1))) {
    // x ** 2 and torch.pow(x, 2) take a Python integer.
    const Arg exponent = *x == std::floor(*x) && std::fabs(*x) < 1e9 ? Arg{static_cast<std::int64_t>(*x)} : Arg{*x};
    e.call_for(at, "aten::pow.Tensor_Scalar", {{e.tensor(at.id(0))}, exponent});
  } else if (is_python_number(e.inferred, at.id(0))) {
    e.call_for(at, "aten::pow.Scalar", {e.operand(at.id(0)), {e.tensor(at.id(1))}});
  } else {
    e.call_for(at, "aten::pow.Tensor_Tensor", {{e.tensor(at.id(0))}, {e.tensor(at.id(1))}});
  }
  return true;
}

bool lower_where(const At& at, Emit& e) {
  const bool x = is_python_number(e.inferred, at.id(1)), y = is_python_number(e.inferred, at.id(2));
  const char* op = x && y ? "aten::where.Scalar"
                   : x    ? "aten::where.ScalarSelf"
                   : y    ? "aten::where.ScalarOther"
                          : "aten::where.self";
  e.call_for(at, op, {{e.tensor(at.id(0))}, e.operand(at.id(1)), e.operand(at.id(2))});
  return true;
}

bool lower_cast(const At& at, Emit& e) {
  const Inferred& out = e.inferred[at.node.outputs[0]];
  const ValueId x = e.tensor(at.id(0));
  if (!out.dtype) return false;
  if (out.dtype == at.in(0).dtype) {
    const SameTypeCast own = e.same_type_casts.empty()
                                 ? SameTypeCast::none
                                 : e.same_type_casts[static_cast<std::size_t>(at.node.outputs[0])];
    if (own == SameTypeCast::none)
      e.bind(at.node.outputs[0], x);  // x.to(x.dtype) returns x
    else if (own == SameTypeCast::up)
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
    {"Cast", infer_cast, lower_cast},
    {"CastLike", infer_cast, lower_cast},
    {"Identity", infer_identity, lower_same},
};

}  // namespace

Rows elementwise_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
