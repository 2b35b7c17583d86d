// Activation functions, as torch/_decomp and torch/_inductor/decomposition.py take them apart: half types are computed
// in fp32 and converted back.
#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

using prim::binary;
using prim::Number;
using prim::unary;

Var product(Tracer& t, const Var& a, const Var& b) { return binary(t, "mul", a, b); }

/// Runs `make` on the wide form of `x` and converts what comes out.
template <class Make>
Var in_wide(Tracer& t, const Var& x, Make make) {
  return prim::convert(t, make(prim::widened(t, x)), x.t->dtype);
}
template <class Make>
Vars gradient_in_wide(Tracer& t, const Var& g, const Var& saved, Make make) {
  return {prim::convert(t, make(prim::widened(t, g), prim::widened(t, saved)), g.t->dtype)};
}

Vars relu_op(Tracer& t, const Items& a) {
  const Var y = unary(t, "relu", a.var(0));
  return {t.record({a.var(0)}, y, [y](Tracer& t, const Vars& g) {
    const Var below = prim::compare(t, "le", y, Number{0, false});
    return Vars{prim::where(t, below, prim::scalar(t, "0.0", g[0].t->dtype), g[0])};
  })};
}

Vars tanh_op(Tracer& t, const Items& a) {
  const Var y = unary(t, "tanh", a.var(0));
  return {t.record({a.var(0)}, y, [y](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], y, [&](const Var& g, const Var& y) {
      return product(t, g, binary(t, "sub", Number{1, false}, product(t, y, y)));
    });
  })};
}

Vars sigmoid_op(Tracer& t, const Items& a) {
  const Var y = unary(t, "sigmoid", a.var(0));
  return {t.record({a.var(0)}, y, [y](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], y, [&](const Var& g, const Var& y) {
      return product(t, g, product(t, y, binary(t, "sub", Number{1, false}, y)));
    });
  })};
}

/// 1 + exp(-x)
Var denominator(Tracer& t, const Var& x) {
  return binary(t, "add", unary(t, "exp", unary(t, "neg", x)), Number{1, false});
}

Vars silu_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Var y = in_wide(t, x, [&](const Var& x) { return binary(t, "div", x, denominator(t, x)); });
  return {t.record({x}, y, [x](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var sigmoid = binary(t, "mul", unary(t, "reciprocal", denominator(t, x)), Number{1, false});
      const Var scaled = product(t, g, sigmoid);
      const Var rest = product(t, x, binary(t, "sub", Number{1, false}, sigmoid));
      return product(t, scaled, binary(t, "add", rest, Number{1, false}));
    });
  })};
}

constexpr double half_root = 0.7071067811865476, density = 0.3989422804014327;

Vars gelu_erf(Tracer& t, const Var& x) {
  const auto cdf = [](Tracer& t, const Var& x) {
    return binary(t, "add", unary(t, "erf", binary(t, "mul", x, Number{half_root})), Number{1, false});
  };
  const Var y = in_wide(t, x, [&](const Var& x) {
    const Var half = binary(t, "mul", x, Number{0.5});
    return product(t, half, cdf(t, x));
  });
  return {t.record({x}, y, [x, cdf](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var below = binary(t, "mul", cdf(t, x), Number{0.5});
      const Var square = binary(t, "mul", product(t, x, x), Number{-0.5});
      const Var pdf = binary(t, "mul", unary(t, "exp", square), Number{density});
      return product(t, g, binary(t, "add", below, product(t, x, pdf)));
    });
  })};
}

constexpr double root = 0.7978845608028654, cubic = 0.044715;

Vars gelu_tanh(Tracer& t, const Var& x) {
  const auto inner = [](Tracer& t, const Var& x) {
    const Var cube = product(t, product(t, x, x), x);
    const Var sum = binary(t, "add", x, binary(t, "mul", cube, Number{cubic}));
    return unary(t, "tanh", binary(t, "mul", sum, Number{root}));
  };
  const Var y = in_wide(t, x, [&](const Var& x) {
    const Var half = binary(t, "mul", x, Number{0.5});
    return product(t, half, binary(t, "add", inner(t, x), Number{1, false}));
  });
  return {t.record({x}, y, [x, inner](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var tanh = inner(t, x);
      const Var left = binary(t, "mul", x, Number{0.5}), right = binary(t, "add", tanh, Number{1, false});
      const Var by_left = binary(t, "mul", right, Number{0.5});
      const Var by_tanh = binary(t, "sub", Number{1, false}, product(t, tanh, tanh));
      const Var slope =
          binary(t, "mul", binary(t, "add", binary(t, "mul", product(t, x, x), Number{3 * cubic}), Number{1, false}),
                 Number{root});
      return product(t, g, binary(t, "add", by_left, product(t, product(t, left, by_tanh), slope)));
    });
  })};
}

Vars gelu_op(Tracer& t, const Items& a) {
  const bool tanh = a.size() > 1 && std::holds_alternative<std::string>(a[1].constant.v) &&
                    std::get<std::string>(a[1].constant.v) == "tanh";
  return tanh ? gelu_tanh(t, a.var(0)) : gelu_erf(t, a.var(0));
}

Var clamped(Tracer& t, const Var& x, double low, double high) {
  return unary(t, "clamp_max", unary(t, "clamp_min", x, prim::text(Number{low})), prim::text(Number{high}));
}

/// min(max(x + 3, 0), 6) / 6
Var hard_sigmoid(Tracer& t, const Var& x) {
  return binary(t, "div", clamped(t, binary(t, "add", x, Number{3, false}), 0, 6), Number{6, false});
}

Var between(Tracer& t, const Var& x, double low, double high) {
  const Var above = prim::compare(t, "gt", x, Number{low}), below = prim::compare(t, "lt", x, Number{high});
  return binary(t, "bitwise_and", above, below);
}

Vars hardsigmoid_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Var y = in_wide(t, x, [&](const Var& x) { return hard_sigmoid(t, x); });
  return {t.record({x}, y, [x](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var slope = binary(t, "mul", g, Number{1.0 / 6});
      return prim::where(t, between(t, x, -3, 3), slope, prim::scalar(t, "0.0", g.t->dtype));
    });
  })};
}

Vars hardswish_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Var y = in_wide(t, x, [&](const Var& x) {
    const Var gate = clamped(t, binary(t, "add", x, Number{3, false}), 0, 6);
    return binary(t, "div", product(t, x, gate), Number{6, false});
  });
  return {t.record({x}, y, [x](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var low = prim::compare(t, "le", x, Number{-3}), mid = prim::compare(t, "lt", x, Number{3});
      const Var slope = product(t, g, binary(t, "add", binary(t, "div", x, Number{3}), Number{0.5}));
      return prim::where(t, low, prim::scalar(t, "0.0", g.t->dtype), prim::where(t, mid, slope, g));
    });
  })};
}

Vars hardtanh_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const bool six = a.op().find("relu6") != std::string_view::npos;
  const double low = six ? 0 : a.none(1) ? -1 : a.number(1), high = six ? 6 : a.none(2) ? 1 : a.number(2);
  return {t.record({x}, clamped(t, x, low, high), [x, low, high](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var outside =
          binary(t, "bitwise_or", prim::compare(t, "le", x, Number{low}), prim::compare(t, "ge", x, Number{high}));
      return prim::where(t, outside, prim::scalar(t, "0.0", g.t->dtype), g);
    });
  })};
}

Vars leaky_relu_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Number slope{a.none(1) ? 0.01 : a.number(1)};
  const Var y = prim::where(t, prim::compare(t, "gt", x, Number{0, false}), x, binary(t, "mul", x, slope));
  return {t.record({x}, y, [x, slope](Tracer& t, const Vars& g) {
    return Vars{prim::where(t, prim::compare(t, "gt", x, Number{0, false}), g[0], binary(t, "mul", g[0], slope))};
  })};
}

Vars elu_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Var y = in_wide(t, x, [&](const Var& x) {
    const Var positive = prim::compare(t, "gt", x, Number{0, false});
    const Var straight = binary(t, "mul", x, Number{1});
    return prim::where(t, positive, straight, binary(t, "mul", unary(t, "expm1", straight), Number{1}));
  });
  // The gradient is told by the result where the op works in place, else by the argument.
  return {t.record({x}, y, [x](Tracer& t, const Vars& g) {
    return gradient_in_wide(t, g[0], x, [&](const Var& g, const Var& x) {
      const Var negative = prim::compare(t, "le", x, Number{0, false});
      const Var straight = binary(t, "mul", g, Number{1});
      return prim::where(t, negative, product(t, straight, unary(t, "exp", binary(t, "mul", x, Number{1}))), straight);
    });
  })};
}

}  // namespace

void add_activations(CompiledOps& ops) {
  ops["relu"] = relu_op;
  ops["tanh"] = tanh_op;
  ops["sigmoid"] = sigmoid_op;
  ops["silu"] = silu_op;
  ops["gelu"] = gelu_op;
  ops["hardsigmoid"] = hardsigmoid_op;
  ops["hardswish"] = hardswish_op;
  ops["hardtanh"] = ops["relu6"] = hardtanh_op;
  ops["leaky_relu"] = leaky_relu_op;
  ops["elu"] = elu_op;
}

}  // namespace memplan::compiled
