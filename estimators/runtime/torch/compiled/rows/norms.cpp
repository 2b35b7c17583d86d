// Normalization: statistics and the rest are computed in fp32 (torch/_refs/__init__.py, native_layer_norm;
// torch/_decomp/decompositions.py, native_batch_norm_helper and the backward passes).
#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

using prim::binary;
using prim::Number;

Number whole(std::int64_t n) { return {static_cast<double>(n), false}; }

struct Normalized {
  Var wide, mean, scale, result;
};

/// (x - mean) * rsqrt(variance + eps) over the given dimensions.
Normalized normalized(Tracer& t, const Var& x, const Dims& over, double eps) {
  Normalized n;
  n.wide = prim::widened(t, x);
  const Vars statistics = prim::var_mean(t, n.wide, over);
  n.mean = statistics[1];
  n.scale = prim::unary(t, "rsqrt", binary(t, "add", statistics[0], Number{eps}));
  n.result = binary(t, "mul", binary(t, "sub", n.wide, n.mean), n.scale);
  return n;
}

Vars layer_norm_op(Tracer& t, const Items& a) {
  const Var x = grad::contiguous(t, a.var(0)), w = a.optional(2), b = a.optional(3);
  const int inner = static_cast<int>(a.dims(1).size());
  Dims over, outer;
  std::int64_t width = 1;
  for (int d = 0; d < x.t->rank(); ++d) {
    if (d < x.t->rank() - inner) {
      outer.push_back(d);
      continue;
    }
    over.push_back(d);
    width *= x.t->sizes[d];
  }
  const Normalized n = normalized(t, x, over, a.number(4));
  Var y = n.result;
  if (w) y = binary(t, "mul", y, w);
  if (b) y = binary(t, "add", y, b);
  y = prim::convert(t, y, x.t->dtype);
  return {t.record({x, w, b}, y, [=](Tracer& t, const Vars& g) {
    const Var gradient = prim::widened(t, g[0]), input = prim::widened(t, x);
    const Var hat = binary(t, "mul", binary(t, "sub", input, n.mean), n.scale);
    const Var weighted = w ? binary(t, "mul", gradient, prim::widened(t, w)) : gradient;
    const Var first = binary(t, "mul", weighted, whole(width)), second = prim::sum(t, weighted, over, true);
    const Var along = prim::sum(t, binary(t, "mul", weighted, hat), over, true);
    const Var rest = binary(t, "sub", binary(t, "sub", first, second), binary(t, "mul", hat, along));
    Vars grads(3);
    grads[0] = prim::convert(t, binary(t, "mul", binary(t, "div", n.scale, whole(width)), rest), x.t->dtype);
    const auto over_rows = [&](const Var& v) { return outer.empty() ? v : prim::sum(t, v, outer, false); };
    if (w) grads[1] = prim::convert(t, over_rows(binary(t, "mul", gradient, hat)), w.t->dtype);
    if (b) grads[2] = prim::convert(t, over_rows(gradient), b.t->dtype);
    return grads;
  })};
}

/// [C] as [1, C, 1, 1]
Var per_channel(Tracer& t, const Var& v, int rank) {
  Var x = prim::unsqueeze(t, v, 0);
  for (int d = 2; d < rank; ++d) x = prim::unsqueeze(t, x, d);
  return x;
}
/// [C] as [C, 1, 1]
Var trailing(Tracer& t, Var v, int rank) {
  for (int d = 2; d < rank; ++d) v = prim::unsqueeze(t, v, -1);
  return v;
}

/// Running statistics are computed anew and written into the buffers.
void update_running(Tracer& t, const Items& a, const Var& mean, const Var& variance, std::int64_t count) {
  const double momentum = a.none(6) ? 0.1 : a.number(6);
  const auto moved = [&](const Var& fresh, const Var& old) {
    const Var sum =
        binary(t, "add", binary(t, "mul", fresh, Number{momentum}), binary(t, "mul", old, Number{1 - momentum}));
    t.graph.effects.push_back(t.emit("copy_", {old, sum}, {}, t.run.empty_like(old.t)).node);
  };
  if (a.optional(3)) moved(mean, a.var(3));
  const double n = static_cast<double>(count);
  if (a.optional(4)) moved(binary(t, "mul", variance, Number{n / std::max(1.0, n - 1)}), a.var(4));
}

Vars batch_norm_gradients(Tracer& t, const Var& g, const Var& x, const Var& w, const Var& b, const Var& mean,
                          const Var& scale, const Dims& over, std::int64_t count) {
  const int rank = x.t->rank();
  const Var gradient = prim::widened(t, g), input = prim::widened(t, x);
  const Var center = per_channel(t, mean, rank);
  const Number norm{1.0 / static_cast<double>(count)};
  const Var total = prim::sum(t, gradient, over, false);
  const Var shifted = binary(t, "sub", input, center);
  const Var along = prim::sum(t, binary(t, "mul", gradient, shifted), over, false);
  const Var grad_mean = per_channel(t, binary(t, "mul", total, norm), rank);
  const Var projected =
      per_channel(t, binary(t, "mul", binary(t, "mul", along, norm), binary(t, "mul", scale, scale)), rank);
  const Var factor = per_channel(t, w ? binary(t, "mul", scale, prim::widened(t, w)) : scale, rank);
  const Var rest = binary(t, "sub", binary(t, "sub", gradient, binary(t, "mul", shifted, projected)), grad_mean);
  Vars grads(3);
  grads[0] = prim::convert(t, binary(t, "mul", rest, factor), x.t->dtype);
  if (w) grads[1] = prim::convert(t, binary(t, "mul", along, scale), w.t->dtype);
  if (b) grads[2] = prim::convert(t, total, b.t->dtype);
  return grads;
}

/// Scales and shifts that an exporter worked out ahead come as [C, 1, 1].
Var one_dimension(Tracer& t, const Var& v) { return v && v.t->rank() != 1 ? grad::reshape(t, v, {v.t->numel()}) : v; }

Vars batch_norm_op(Tracer& t, const Items& a) {
  const Var x = a.var(0), w = one_dimension(t, a.optional(1)), b = one_dimension(t, a.optional(2));
  const bool training = a.boolean(5) || !a.is_var(3) || !a.is_var(4);  // without running statistics the batch's own
  const double eps = a.none(7) ? 1e-5 : a.number(7);
  const int rank = x.t->rank();
  Dims over;
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d)
    if (d != 1) {
      over.push_back(d);
      count *= x.t->sizes[d];
    }
  Var mean, scale, y;
  if (training) {
    const Var wide = prim::widened(t, x);
    const Vars statistics = prim::var_mean(t, wide, over);
    const Var root = prim::unary(t, "rsqrt", binary(t, "add", statistics[0], Number{eps}));
    // The difference is taken of the tensor itself: promotion widens it.
    y = binary(t, "mul", binary(t, "sub", x, statistics[1]), root);
    mean = prim::squeeze(t, statistics[1], over);
    scale = prim::squeeze(t, root, over);
    update_running(t, a, mean, prim::squeeze(t, statistics[0], over), count);
  } else {
    mean = a.var(3);
    const Var root = prim::unary(t, "sqrt", binary(t, "add", a.var(4), Number{eps}));
    scale = prim::unary(t, "reciprocal", root);
    y = binary(t, "mul", binary(t, "sub", x, trailing(t, mean, rank)), trailing(t, scale, rank));
  }
  if (w) y = binary(t, "mul", y, trailing(t, w, rank));
  if (b) y = binary(t, "add", y, trailing(t, b, rank));
  y = prim::convert(t, y, x.t->dtype);
  return {t.record({x, w, b}, y, [=](Tracer& t, const Vars& g) {
    return batch_norm_gradients(t, g[0], x, w, b, mean, scale, over, count);
  })};
}

/// Groups are normalized as rows of [N, groups, C / groups * H * W].
Vars group_norm_op(Tracer& t, const Items& a) {
  const Var x = grad::contiguous(t, a.var(0)), w = one_dimension(t, a.optional(2)), b = one_dimension(t, a.optional(3));
  const std::int64_t groups = a.integer(1), n = x.t->sizes[0], c = x.t->sizes[1];
  if (groups <= 0 || c % groups != 0) fail_input("group norm: the groups do not fit the channels");
  const std::int64_t area = x.t->numel() / std::max<std::int64_t>(1, n * c), count = c / groups * area;
  const int rank = x.t->rank();
  const Var rows = prim::reshape(t, x, {n, groups, c / groups, area});
  const Normalized normal = normalized(t, rows, {2, 3}, a.number(4));
  Var y = prim::view(t, normal.result, x.t->sizes);
  const auto spread = [rank](Tracer& t, const Var& v) { return trailing(t, prim::unsqueeze(t, v, 0), rank); };
  if (w) y = binary(t, "mul", y, spread(t, w));
  if (b) y = binary(t, "add", y, spread(t, b));
  y = prim::convert(t, y, x.t->dtype);
  const Var mean = prim::squeeze(t, prim::squeeze(t, normal.mean, 3), 2),
            scale = prim::squeeze(t, prim::squeeze(t, normal.scale, 3), 2);
  return {t.record({x, w, b}, y, [=](Tracer& t, const Vars& g) {
    const Var gradient = prim::widened(t, g[0]), input = prim::widened(t, x);
    const Dims plane{n, c, area}, parts{n, groups, c / groups};
    const Var ds = prim::sum(t, prim::view(t, binary(t, "mul", gradient, input), plane), {2}, false);
    const Var db = prim::sum(t, prim::view(t, gradient, plane), {2}, false);
    const auto grouped = [&](const Var& v) {
      return prim::reshape(t, w ? binary(t, "mul", v, prim::unsqueeze(t, w, 0)) : v, parts);
    };
    const Var dsv = prim::sum(t, grouped(ds), {2}, false), dbv = prim::sum(t, grouped(db), {2}, false);
    const Number s{1.0 / static_cast<double>(count)};
    const Var c1 = w ? binary(t, "mul", prim::unsqueeze(t, scale, -1), prim::reshape(t, w, {1, groups, c / groups}))
                     : prim::unsqueeze(t, scale, -1);
    const Var cube = binary(
        t, "mul", binary(t, "mul", binary(t, "mul", binary(t, "sub", binary(t, "mul", dbv, mean), dsv), scale), scale),
        scale);
    const Var c2 = binary(t, "mul", cube, s);
    const Var c3 = binary(t, "sub", binary(t, "mul", prim::unary(t, "neg", c2), mean),
                          binary(t, "mul", binary(t, "mul", dbv, scale), s));
    const auto wide = [&](const Var& v) {
      return prim::unsqueeze(t, v.t->rank() == 3 ? v : prim::unsqueeze(t, v, -1), -1);
    };
    const Dims four{n, groups, c / groups, area};
    const Var by_gradient = binary(t, "mul", prim::reshape(t, gradient, four), wide(c1));
    const Var by_input = binary(t, "mul", prim::reshape(t, input, four), wide(c2));
    Vars grads(3);
    grads[0] = prim::convert(
        t, prim::reshape(t, binary(t, "add", binary(t, "add", by_gradient, by_input), wide(c3)), x.t->sizes),
        x.t->dtype);
    if (w) {
      const Var shifted = binary(t, "sub", prim::view(t, ds, parts),
                                 binary(t, "mul", prim::view(t, db, parts), prim::unsqueeze(t, mean, -1)));
      grads[1] =
          prim::reshape(t, prim::sum(t, binary(t, "mul", shifted, prim::unsqueeze(t, scale, -1)), {0}, false), {c});
    }
    if (b) grads[2] = prim::sum(t, db, {0}, false);
    return grads;
  })};
}

/// x * rsqrt(mean(x^2) + eps) * w
Vars rms_norm_op(Tracer& t, const Items& a) {
  const Var x = a.var(0), w = a.optional(2);
  const int inner = static_cast<int>(a.dims(1).size());
  Dims over;
  for (int d = x.t->rank() - inner; d < x.t->rank(); ++d) over.push_back(d);
  const Var wide = grad::convert(t, x, prim::wide(x.t->dtype));
  const Var squares =
      t.record({wide}, prim::unary(t, "pow", wide, prim::text(Number{2, false})), [wide](Tracer& t, const Vars& g) {
        const Var below = prim::unary(t, "pow", wide, prim::text(Number{1}));
        return Vars{binary(t, "mul", g[0], binary(t, "mul", below, Number{2}))};
      });
  const Var sum = grad::add(t, grad::mean(t, squares, over, true), Number{a.none(3) ? 1e-6 : a.number(3)});
  const Var root = prim::unary(t, "rsqrt", sum);
  const Var scale = t.record({sum}, root, [root](Tracer& t, const Vars& g) {
    return Vars{binary(t, "mul", binary(t, "mul", g[0], Number{-0.5}),
                       prim::unary(t, "pow", root, prim::text(Number{3, false})))};
  });
  Var y = grad::mul(t, wide, scale);
  if (w) y = grad::mul(t, y, w);
  return {grad::convert(t, y, x.t->dtype)};
}

/// The Euclidean norm of torch/_refs/linalg (vector_norm) and its derivative, norm_backward; others are guesses.
Vars vector_norm_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  if (!a.none(1) && a.number(1) != 2) fail_input("only the norm of order 2 is taken apart");
  Dims over = a.dims(2);
  for (auto& d : over) d = op::wrap_dim(d, x.t->rank());
  if (over.empty())
    for (int d = 0; d < x.t->rank(); ++d) over.push_back(d);
  const bool keep = !a.none(3) && a.boolean(3);
  const Number two{2, false}, half{0.5};
  const Var squares = prim::sum(t, prim::unary(t, "pow", x, prim::text(two)), over, keep);
  const Var y = prim::unary(t, "pow", squares, prim::text(half));
  return {t.record({x}, y, [=](Tracer& t, const Vars& g) {
    const Var zero = prim::scalar(t, "0.0", g[0].t->dtype);
    Var factor = prim::where(t, prim::compare(t, "eq", y, Number{0, false}), zero, binary(t, "div", g[0], y));
    if (!keep) {
      Dims sizes = x.t->sizes;
      for (const auto d : over) sizes[static_cast<int>(d)] = 1;
      factor = prim::view(t, factor, sizes);
    }
    return Vars{binary(t, "mul", x, factor)};
  })};
}

}  // namespace

void add_norms(CompiledOps& ops) {
  ops["layer_norm"] = layer_norm_op;
  ops["batch_norm"] = batch_norm_op;
  ops["group_norm"] = group_norm_op;
  ops["rms_norm"] = rms_norm_op;
  ops["linalg_vector_norm"] = vector_norm_op;
}

}  // namespace memplan::compiled
