// Sums, products, functions, comparisons, reductions.
#include <algorithm>

#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

using prim::Number;

/// alpha of add and sub: another product where it is not one.
Var scaled(Tracer& t, const Items& a, std::size_t alpha) {
  const Var other = a.var(1);
  return a.none(alpha) || a.number(alpha) == 1 ? other : grad::mul(t, other, a.scalar(alpha));
}

Vars add_op(Tracer& t, const Items& a) {
  if (!a.is_var(0)) return {grad::add(t, a.var(1), a.scalar(0))};
  return {a.is_var(1) ? grad::add(t, a.var(0), scaled(t, a, 2)) : grad::add(t, a.var(0), a.scalar(1))};
}

Var minus_number(Tracer& t, const Var& a, Number n) {
  return t.record({a}, prim::binary(t, "sub", a, n), [](Tracer&, const Vars& g) { return g; });
}

Var number_minus(Tracer& t, Number n, const Var& a) {
  return t.record({a}, prim::binary(t, "sub", n, a),
                  [](Tracer& t, const Vars& g) { return Vars{prim::unary(t, "neg", g[0])}; });
}

Vars sub_op(Tracer& t, const Items& a) {
  if (!a.is_var(0)) return {number_minus(t, a.scalar(0), a.var(1))};
  return {a.is_var(1) ? grad::sub(t, a.var(0), scaled(t, a, 2)) : minus_number(t, a.var(0), a.scalar(1))};
}

Vars rsub_op(Tracer& t, const Items& a) {
  return {a.is_var(1) ? grad::sub(t, a.var(1), a.var(0)) : number_minus(t, a.scalar(1), a.var(0))};
}

Vars mul_op(Tracer& t, const Items& a) {
  if (!a.is_var(0)) return {grad::mul(t, a.var(1), a.scalar(0))};
  return {a.is_var(1) ? grad::mul(t, a.var(0), a.var(1)) : grad::mul(t, a.var(0), a.scalar(1))};
}

/// Integers are converted before they are divided.
Vars div_op(Tracer& t, const Items& a) {
  const auto floating = [&](const Var& v) { return is_floating(v.t->dtype) ? v : prim::convert(t, v, DType::float32); };
  if (!a.is_var(0)) {
    const Var one =
        t.record({a.var(1)}, prim::unary(t, "reciprocal", a.var(1)), [x = a.var(1)](Tracer& t, const Vars& g) {
          const Var y = prim::unary(t, "reciprocal", x);
          return Vars{prim::binary(t, "mul", prim::unary(t, "neg", g[0]), prim::binary(t, "mul", y, y))};
        });
    return {grad::mul(t, one, a.scalar(0))};
  }
  const Var x = floating(a.var(0));
  return {a.is_var(1) ? grad::div(t, x, a.var(1)) : grad::div(t, x, a.scalar(1))};
}

/// pow_backward: the power below, times the exponent.
Vars pow_op(Tracer& t, const Items& a) {
  if (!a.is_var(0) || a.is_var(1)) {
    const Var x = a.is_var(0) ? a.var(0) : a.var(1);
    const Vars in = a.is_var(0) && a.is_var(1) ? Vars{a.var(0), a.var(1)} : Vars{x};
    Var made = in.size() == 2 ? prim::binary(t, "pow", in[0], in[1])
                              : prim::unary(t, "pow", x, prim::text(a.scalar(0)) + " base");
    return {t.record(in, made, [in, made](Tracer& t, const Vars& g) {
      Vars grads;
      for (std::size_t i = 0; i < in.size(); ++i) grads.push_back(prim::binary(t, "mul", g[0], made));
      return grads;
    })};
  }
  const Var x = a.var(0);
  const Number n = a.scalar(1);
  const Var made = prim::unary_as(t, "pow", x, op::result_type({x.t, op::number(t.run, n.floating)}), prim::text(n));
  return {t.record({x}, made, [x, n](Tracer& t, const Vars& g) {
    if (n.value == 0) return Vars{Var{}};
    const Var below = prim::unary(t, "pow", x, prim::text(Number{n.value - 1, true}));
    return Vars{prim::binary(t, "mul", g[0], prim::binary(t, "mul", below, {n.value, true}))};
  })};
}

/// A function of one tensor: its name here, and its derivative from gradient, argument and result.
struct Function {
  std::string_view name;
  Var (*derivative)(Tracer&, const Var& g, const Var& x, const Var& y);
};

Var times(Tracer& t, const Var& a, const Var& b) { return prim::binary(t, "mul", a, b); }

constexpr Function function_table[] = {
    {"neg", [](Tracer& t, const Var& g, const Var&, const Var&) { return prim::unary(t, "neg", g); }},
    {"exp", [](Tracer& t, const Var& g, const Var&, const Var& y) { return times(t, g, y); }},
    {"log", [](Tracer& t, const Var& g, const Var& x, const Var&) { return prim::binary(t, "div", g, x); }},
    {"sin", [](Tracer& t, const Var& g, const Var& x, const Var&) { return times(t, g, prim::unary(t, "cos", x)); }},
    {"cos", [](Tracer& t, const Var& g, const Var& x,
               const Var&) { return times(t, g, prim::unary(t, "neg", prim::unary(t, "sin", x))); }},
    {"abs", [](Tracer& t, const Var& g, const Var& x, const Var&) { return times(t, g, prim::unary(t, "sgn", x)); }},
    {"sqrt",
     [](Tracer& t, const Var& g, const Var&, const Var& y) {
       return prim::binary(t, "div", g, prim::binary(t, "mul", y, Number{2, false}));
     }},
    {"rsqrt",
     [](Tracer& t, const Var& g, const Var&, const Var& y) {
       const Var half = prim::binary(t, "mul", g, Number{-0.5});
       return times(t, half, prim::unary(t, "pow", y, prim::text(Number{3, false})));
     }},
    {"reciprocal", [](Tracer& t, const Var& g, const Var&,
                      const Var& y) { return times(t, prim::unary(t, "neg", g), times(t, y, y)); }},
};

std::string_view base_name(std::string_view op) {
  op.remove_prefix(std::min(op.size(), std::string_view("aten::").size()));
  op = op.substr(0, op.find('.'));
  if (op.size() > 2 && op.back() == '_' && op[op.size() - 2] != '_') op.remove_suffix(1);
  return op;
}

Vars function_op(Tracer& t, const Items& a) {
  const std::string_view name = base_name(a.op());
  const Function& f = *std::find_if(std::begin(function_table), std::end(function_table),
                                    [&](const Function& row) { return row.name == name; });
  const Var x = is_floating(a.var(0).t->dtype) || f.name == "neg" || f.name == "abs"
                    ? a.var(0)
                    : prim::convert(t, a.var(0), DType::float32);
  const Var y = prim::unary(t, f.name, x);
  return {t.record({x}, y, [x, y, &f](Tracer& t, const Vars& g) { return Vars{f.derivative(t, g[0], x, y)}; })};
}

/// Without a gradient: comparisons, and arithmetic of integers and booleans.
Vars plain_op(Tracer& t, const Items& a) {
  static const std::map<std::string_view, std::string_view> renamed{
      {"__and__", "bitwise_and"}, {"__or__", "bitwise_or"}, {"greater", "gt"}, {"less", "lt"}};
  std::string_view name = base_name(a.op());
  if (const auto other = renamed.find(name); other != renamed.end()) name = other->second;
  const ValueList made = call_op(t.run, a.row(), a.values(), {});
  Vars in;
  std::string constants;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a.is_var(i))
      in.push_back(a.var(i));
    else if (!a[i].is_list && a[i].constant.is_number())
      constants += prim::text(a.scalar(i)) + " ";
  }
  return {t.emit(name, in, std::move(constants), made[0].tensor())};
}

Vars where_op(Tracer& t, const Items& a) {
  const DType dtype = a.is_var(1) ? a.var(1).t->dtype : a.is_var(2) ? a.var(2).t->dtype : DType::float32;
  const auto side = [&](std::size_t i) {
    return a.is_var(i) ? a.var(i) : prim::scalar(t, prim::text(a.scalar(i)), dtype);
  };
  const Var c = a.var(0), x = side(1), y = side(2);
  return {t.record({c, x, y}, prim::where(t, c, x, y), [c, x, y](Tracer& t, const Vars& g) {
    const Var zero = prim::scalar(t, "0.0", g[0].t->dtype);
    return Vars{
        {}, x.wants() ? prim::where(t, c, g[0], zero) : Var{}, y.wants() ? prim::where(t, c, zero, g[0]) : Var{}};
  })};
}

Vars masked_fill_op(Tracer& t, const Items& a) {
  const Var x = a.var(0), mask = a.var(1);
  const Var value = a.is_var(2) ? a.var(2) : prim::scalar(t, prim::text(a.scalar(2)), x.t->dtype);
  return {t.record({x}, prim::where(t, mask, value, x), [mask](Tracer& t, const Vars& g) {
    return Vars{prim::where(t, mask, prim::scalar(t, "0.0", g[0].t->dtype), g[0])};
  })};
}

/// self + value * a * b
Vars addcmul_op(Tracer& t, const Items& i) {
  const Var self = i.var(0), a = i.var(1), b = i.var(2);
  const Number value = i.none(3) ? Number{1, false} : i.scalar(3);
  const Var scaled = times(t, prim::binary(t, "mul", a, value), b);
  return {t.record({self, a, b}, prim::binary(t, "add", self, scaled), [=](Tracer& t, const Vars& g) {
    Vars grads{g[0], {}, {}};
    if (a.wants()) grads[1] = times(t, g[0], prim::binary(t, "mul", b, value));
    if (b.wants()) grads[2] = times(t, g[0], prim::binary(t, "mul", a, value));
    return grads;
  })};
}

Vars sum_op(Tracer& t, const Items& a) {
  const bool all = a.size() < 3;  // aten::sum has no dimensions
  Var x = a.var(0);
  const DType dtype = a.dtype_or(all ? 1 : 3, x.t->dtype);
  x = grad::convert(t, x, dtype);
  return {grad::sum(t, x, all ? Dims() : a.dims(1), !all && a.boolean(2))};
}

Vars mean_op(Tracer& t, const Items& a) {
  const bool all = a.size() < 3;
  return {grad::mean(t, a.var(0), all ? Dims() : a.dims(1), !all && a.boolean(2))};
}

Vars convert_op(Tracer& t, const Items& a) {
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  return {grad::convert(t, a.var(0), made->dtype)};
}

Vars clamp_op(Tracer& t, const Items& a) {
  Var x = a.var(0), y = x;
  std::string bounds;
  for (const auto& [i, name] : {std::pair<std::size_t, std::string_view>{1, "clamp_min"}, {2, "clamp_max"}}) {
    if (a.none(i)) continue;
    y = a.is_var(i) ? prim::binary(t, i == 1 ? "maximum" : "minimum", y, a.var(i))
                    : prim::unary(t, name, y, prim::text(a.scalar(i)));
    if (!a.is_var(i)) bounds += prim::text(a.scalar(i)) + " ";
  }
  return {t.record({x}, y, [x, bounds](Tracer& t, const Vars& g) {
    const Var inside = prim::unary_as(t, "logical_and", x, DType::boolean, bounds);
    return Vars{prim::where(t, inside, g[0], prim::scalar(t, "0.0", g[0].t->dtype))};
  })};
}

/// The smaller or larger one of two tensors; where both are equal, each gets half of the gradient. min and max of one
/// tensor are guesses.
Vars extreme_op(Tracer& t, const Items& i) {
  const Var a = i.var(0), b = i.var(1);
  const bool least = i.op().find("min") != std::string_view::npos;
  return {t.record({a, b}, prim::binary(t, least ? "minimum" : "maximum", a, b), [=](Tracer& t, const Vars& g) {
    const Var zero = prim::scalar(t, "0.0", g[0].t->dtype);
    const Var half = prim::where(t, prim::compare(t, "eq", a, b), prim::binary(t, "div", g[0], Number{2, false}), g[0]);
    Vars grads(2);
    if (a.wants()) grads[0] = prim::where(t, prim::compare(t, least ? "gt" : "lt", a, b), zero, half);
    if (b.wants()) grads[1] = prim::where(t, prim::compare(t, least ? "lt" : "gt", a, b), zero, half);
    return grads;
  })};
}

}  // namespace

void add_pointwise_ops(CompiledOps& ops) {
  ops["add"] = add_op;
  ops["sub"] = sub_op;
  ops["rsub"] = rsub_op;
  ops["mul"] = mul_op;
  ops["div"] = div_op;
  ops["pow"] = pow_op;
  for (const Function& f : function_table) ops[std::string(f.name)] = function_op;
  for (const char* name :
       {"eq",          "ne",         "lt",          "le",          "gt",          "ge",         "__and__",     "__or__",
        "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor", "logical_and", "logical_or", "logical_not", "isnan",
        "isinf",       "floor",      "ceil",        "round",       "sign",        "remainder",  "floor_divide"})
    ops[name] = plain_op;
  for (const char* name : {"minimum", "maximum", "min", "max"}) ops[name] = extreme_op;
  ops["where"] = where_op;
  ops["masked_fill"] = masked_fill_op;
  ops["addcmul"] = addcmul_op;
  ops["sum"] = sum_op;
  ops["mean"] = mean_op;
  ops["to_default_dtype"] = ops["to"] = ops["type_as"] = ops["_to_copy"] = ops["float"] = convert_op;
  ops["clamp"] = ops["clamp_min"] = clamp_op;
}

}  // namespace memplan::compiled
