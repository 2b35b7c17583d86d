#include "estimators/runtime/torch/compiled/autograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace memplan::compiled::grad {

Var add(Tracer& t, const Var& a, const Var& b) {
  return t.record({a, b}, prim::binary(t, "add", a, b), [](Tracer&, const Vars& g) { return Vars{g[0], g[0]}; });
}

Var add(Tracer& t, const Var& a, Number n) {
  return t.record({a}, prim::binary(t, "add", a, n), [](Tracer&, const Vars& g) { return g; });
}

Var sub(Tracer& t, const Var& a, const Var& b) {
  return t.record({a, b}, prim::binary(t, "sub", a, b), [b](Tracer& t, const Vars& g) {
    return Vars{g[0], b.wants() ? prim::unary(t, "neg", g[0]) : Var{}};
  });
}

Var mul(Tracer& t, const Var& a, const Var& b) {
  return t.record({a, b}, prim::binary(t, "mul", a, b), [a, b](Tracer& t, const Vars& g) {
    return Vars{a.wants() ? prim::binary(t, "mul", g[0], b) : Var{},
                b.wants() ? prim::binary(t, "mul", g[0], a) : Var{}};
  });
}

Var mul(Tracer& t, const Var& a, Number n) {
  return t.record({a}, prim::binary(t, "mul", a, n),
                  [n](Tracer& t, const Vars& g) { return Vars{prim::binary(t, "mul", g[0], n)}; });
}

Var div(Tracer& t, const Var& a, const Var& b) {
  return t.record({a, b}, prim::binary(t, "div", a, b), [a, b](Tracer& t, const Vars& g) {
    Vars grads(2);
    if (a.wants()) grads[0] = prim::binary(t, "div", g[0], b);
    if (b.wants()) {
      const Var minus = prim::unary(t, "neg", g[0]);
      const Var twice = prim::binary(t, "div", prim::binary(t, "div", a, b), b);
      grads[1] = prim::binary(t, "mul", minus, twice);
    }
    return grads;
  });
}

Var div(Tracer& t, const Var& a, Number n) {
  return t.record({a}, prim::binary(t, "div", a, n),
                  [n](Tracer& t, const Vars& g) { return Vars{prim::binary(t, "div", g[0], n)}; });
}

Var convert(Tracer& t, const Var& a, DType dtype) {
  if (a.t->dtype == dtype) return a;
  return t.record({a}, prim::convert(t, a, dtype), [](Tracer&, const Vars& g) { return g; });
}

Var view(Tracer& t, const Var& a, const Dims& sizes) {
  return t.record({a}, prim::view(t, a, sizes),
                  [like = a.t->sizes](Tracer& t, const Vars& g) { return Vars{prim::reshape(t, g[0], like)}; });
}

Var reshape(Tracer& t, const Var& a, const Dims& sizes) {
  const Dims whole = op::infer_size(sizes, a.t->numel());
  return view(t, op::view_strides(*a.t, whole) ? a : clone(t, a), whole);
}

Var permute(Tracer& t, const Var& a, const Dims& order) {
  return t.record({a}, prim::permute(t, a, order), [order](Tracer& t, const Vars& g) {
    Dims back = order;
    for (int d = 0; d < order.size(); ++d) back[op::wrap_dim(order[d], order.size())] = d;
    return Vars{prim::permute(t, g[0], back)};
  });
}

Var transpose(Tracer& t, const Var& a, int x, int y) {
  Dims order;
  for (int d = 0; d < a.t->rank(); ++d) order.push_back(d);
  if (order.size() < 2) return a;
  std::swap(order[op::wrap_dim(x, a.t->rank())], order[op::wrap_dim(y, a.t->rank())]);
  return permute(t, a, order);
}

Var expand(Tracer& t, const Var& a, const Dims& sizes) {
  return t.record({a}, prim::expand(t, a, sizes),
                  [like = a.t->sizes](Tracer& t, const Vars& g) { return Vars{prim::sum_to(t, g[0], like)}; });
}

Var unsqueeze(Tracer& t, const Var& a, int dim) {
  const int at = op::wrap_dim(dim, a.t->rank() + 1);
  return t.record({a}, prim::unsqueeze(t, a, dim),
                  [at](Tracer& t, const Vars& g) { return Vars{prim::squeeze(t, g[0], at)}; });
}

Var squeeze(Tracer& t, const Var& a, int dim) {
  const int at = op::wrap_dim(dim, a.t->rank());
  const bool changes = a.t->rank() > 0 && a.t->sizes[at] == 1;
  return t.record({a}, prim::squeeze(t, a, dim), [at, changes](Tracer& t, const Vars& g) {
    return Vars{changes ? prim::unsqueeze(t, g[0], at) : g[0]};
  });
}

Var slice(Tracer& t, const Var& a, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  return t.record({a}, prim::slice(t, a, dim, start, end, step), [=, like = a.t](Tracer& t, const Vars& g) {
    const Var zeros = prim::full(t, like->sizes, "0", g[0].t->dtype);
    return Vars{t.emit("slice_scatter", {zeros, g[0]}, fmt::format("{} {} {} {}", dim, start, end, step),
                       t.run.empty_like(zeros.t))};
  });
}

Var select(Tracer& t, const Var& a, int dim, std::int64_t index) {
  return t.record({a}, prim::select(t, a, dim, index), [=, like = a.t](Tracer& t, const Vars& g) {
    const Var zeros = prim::full(t, like->sizes, "0", g[0].t->dtype);
    return Vars{t.emit("select_scatter", {zeros, g[0]}, fmt::format("{} {}", dim, index), t.run.empty_like(zeros.t))};
  });
}

Vars split(Tracer& t, const Var& a, const std::vector<std::int64_t>& sizes, int dim, std::string constants) {
  const int at = op::wrap_dim(dim, a.t->rank());
  const TensorList parts = op::split(t.run, a.t, sizes, at);
  Vars pieces = t.emit_several("split", {a}, std::move(constants), parts);
  return t.record({a}, std::move(pieces), [parts, at](Tracer& t, const Vars& g) {
    const auto one = std::find_if(g.begin(), g.end(), [](const Var& v) { return static_cast<bool>(v); });
    Vars all;
    for (std::size_t i = 0; i < parts.size(); ++i)
      all.push_back(g[i] ? g[i] : prim::full(t, parts[i]->sizes, "0", one->t->dtype));
    return Vars{prim::cat(t, all, at)};
  });
}

Var clone(Tracer& t, const Var& a, op::Format format) {
  return t.record({a}, prim::clone(t, a, format), [](Tracer&, const Vars& g) { return g; });
}

Var contiguous(Tracer& t, const Var& a) { return is_contiguous(*a.t) ? a : clone(t, a); }

Var cat(Tracer& t, const Vars& parts, int dim) {
  if (parts.size() == 1) return clone(t, parts[0], op::Format::preserve);
  const bool repeated = std::all_of(parts.begin(), parts.end(), [&](const Var& p) { return p.node == parts[0].node; });
  std::vector<std::int64_t> widths;
  const int at = op::wrap_dim(dim, parts[0].t->rank());
  for (const Var& p : parts) widths.push_back(p.t->size(at));
  const auto joined = [&] {
    if (!repeated) return prim::cat(t, parts, dim);
    // One tensor several times is read several times.
    Dims wide = parts[0].t->sizes, flat = wide;
    wide.insert(at, static_cast<std::int64_t>(parts.size()));
    flat[at] *= static_cast<std::int64_t>(parts.size());
    const Var spread = prim::expand(t, prim::unsqueeze(t, parts[0], at), wide);
    return prim::clone(t, prim::reshape(t, spread, flat), op::Format::preserve);
  };
  return t.record(parts, joined(), [widths, at](Tracer& t, const Vars& g) {
    Vars grads;
    std::int64_t begin = 0;
    for (const std::int64_t width : widths) {
      grads.push_back(prim::slice(t, g[0], at, begin, begin + width));
      begin += width;
    }
    return grads;
  });
}

namespace {

/// sum_backward: dimensions that were reduced come back, and the gradient is spread over them.
Var spread(Tracer& t, const Var& gradient, const Dims& like, Dims dims, bool keepdim) {
  Var g = gradient;
  if (!keepdim && !like.empty() && !dims.empty()) {
    for (int i = 0; i < dims.size(); ++i) dims[i] = op::wrap_dim(dims[i], like.size());
    std::sort(dims.begin(), dims.end());
    for (const std::int64_t d : dims) g = prim::unsqueeze(t, g, static_cast<int>(d));
  }
  return prim::expand(t, g, like);
}

}  // namespace

Var sum(Tracer& t, const Var& a, const Dims& dims, bool keepdim) {
  return t.record({a}, prim::sum(t, a, dims, keepdim), [=, like = a.t->sizes](Tracer& t, const Vars& g) {
    return Vars{spread(t, g[0], like, dims, keepdim)};
  });
}

Var mean(Tracer& t, const Var& a, const Dims& dims, bool keepdim) {
  const Var result = prim::reduce(t, "mean", a, dims, keepdim);
  return t.record({a}, result, [=, like = a.t](Tracer& t, const Vars& g) {
    const std::int64_t n = like->numel() / std::max<std::int64_t>(1, result.t->numel());
    return Vars{prim::binary(t, "div", spread(t, g[0], like->sizes, dims, keepdim), {static_cast<double>(n), false})};
  });
}

namespace {

/// _softmax_backward_data
Var softmax_gradient(Tracer& t, const Var& g, const Var& result, const Dims& over, DType dtype) {
  const Var gradient = prim::widened(t, g), y = prim::widened(t, result);
  const Var product = prim::binary(t, "mul", gradient, y);
  const Var total = prim::sum(t, product, over, true);
  const Var minus = prim::unary(t, "neg", y);
  const Var made = t.emit("fma", {minus, total, product}, {}, t.run.empty_like(product.t));
  return prim::contiguous(t, prim::convert(t, made, dtype));
}

Var plain_softmax(Tracer& t, const Var& a, const Dims& over) {
  const Var x = prim::widened(t, a);
  const Var shifted = prim::binary(t, "sub", x, prim::reduce(t, "amax", x, over, true));
  const Var powers = prim::unary(t, "exp", shifted);
  const Var wide = prim::binary(t, "div", powers, prim::sum(t, powers, over, true));
  return prim::convert(t, wide, a.t->dtype);
}

}  // namespace

Var softmax(Tracer& t, const Var& a, int dim) {
  const Dims over{dim};
  const Var result = plain_softmax(t, a, over);
  return t.record({a}, result, [result, over, dtype = a.t->dtype](Tracer& t, const Vars& g) {
    return Vars{softmax_gradient(t, g[0], result, over, dtype)};
  });
}

/// _safe_softmax: rows that are masked out whole become zeros.
Var safe_softmax(Tracer& t, const Var& a) {
  const Dims over{-1};
  const Var y = plain_softmax(t, a, over);
  const Var open = prim::unary(t, "logical_not", prim::compare(t, "eq", a, Number{-INFINITY}));
  const Var closed = prim::unary_as(t, "logical_not", prim::reduce(t, "any", open, over, true), DType::boolean);
  const Var result = prim::where(t, closed, prim::full(t, y.t->sizes, "0", y.t->dtype), y);
  return t.record({a}, result, [result, over, dtype = a.t->dtype](Tracer& t, const Vars& g) {
    return Vars{softmax_gradient(t, g[0], result, over, dtype)};
  });
}

Var log_softmax(Tracer& t, const Var& a, int dim) {
  const Dims over{dim};
  const DType dtype = a.t->dtype;
  const Var x = prim::widened(t, a);
  const Var shifted = prim::binary(t, "sub", x, prim::reduce(t, "amax", x, over, true));
  const Var log = prim::unary(t, "log", prim::sum(t, prim::unary(t, "exp", shifted), over, true));
  const Var result = prim::convert(t, prim::binary(t, "sub", shifted, log), dtype);
  return t.record({a}, result, [result, over, dtype](Tracer& t, const Vars& g) {
    const Var gradient = prim::widened(t, g[0]), y = prim::widened(t, result);
    const Var powers = prim::unary(t, "exp", y);
    const Var total = prim::sum(t, gradient, over, true);
    const Var made = prim::binary(t, "sub", gradient, prim::binary(t, "mul", powers, total));
    return Vars{prim::convert(t, made, dtype)};
  });
}

/// native_dropout: the mask is what the backward pass reads.
Var dropout(Tracer& t, const Var& a, double p) {
  if (p <= 0 || p >= 1) return p <= 0 ? a : mul(t, a, {0, true});
  const Var mask = prim::compare(t, "gt", prim::random_like(t, a), {p, true});
  const Number scale{1 / (1 - p), true};
  const Var kept = prim::binary(t, "mul", prim::binary(t, "mul", mask, a), scale);
  return t.record({a}, kept, [mask, scale](Tracer& t, const Vars& g) {
    const Var factor = prim::binary(t, "mul", prim::convert(t, mask, g[0].t->dtype), scale);
    return Vars{prim::binary(t, "mul", g[0], factor)};
  });
}

/// dropout_: the noise is drawn, scaled and multiplied with.
Var dropout_in_place(Tracer& t, const Var& a, double p) {
  if (p <= 0 || p >= 1) return p <= 0 ? a : mul(t, a, {0, true});
  const Var drawn = prim::compare(t, "lt", prim::random_like(t, a), {1 - p, true});
  const Var noise = prim::binary(t, "div", prim::convert(t, drawn, a.t->dtype), Number{1 - p, true});
  return mul(t, a, noise);
}

Var constant_pad(Tracer& t, const Var& a, const std::vector<std::int64_t>& pads) {
  const auto padded = [](Tracer& t, const Var& v, const std::vector<std::int64_t>& by) {
    Dims sizes = v.t->sizes;
    for (std::size_t i = 0; i + 1 < by.size(); i += 2)
      sizes[sizes.size() - 1 - static_cast<int>(i / 2)] += by[i] + by[i + 1];
    return t.emit("constant_pad_nd", {v}, fmt::format("{}", fmt::join(by, " ")), t.run.empty(sizes, v.t->dtype));
  };
  return t.record({a}, padded(t, a, pads), [padded, pads](Tracer& t, const Vars& g) {
    std::vector<std::int64_t> back = pads;
    for (std::int64_t& n : back) n = -n;
    return Vars{padded(t, g[0], back)};
  });
}

}  // namespace memplan::compiled::grad
