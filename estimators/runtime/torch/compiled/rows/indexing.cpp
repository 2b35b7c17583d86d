// Tables that are read by position, and tensors made of nothing.
#include <fmt/format.h>

#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

/// A gradient at positions of a larger tensor: zeros, and what belongs there added up.
Var put(Tracer& t, const Dims& sizes, DType dtype, const Vars& indices, const std::string& where, const Var& values) {
  Vars inputs{prim::full(t, sizes, "0", dtype)};
  inputs.insert(inputs.end(), indices.begin(), indices.end());
  inputs.push_back(values);
  return t.emit("index_put", inputs, where, t.run.empty(sizes, dtype));
}

/// embedding_dense_backward: rows of the padding word get nothing.
Vars embedding_op(Tracer& t, const Items& a) {
  const Var table = a.var(0), ids = a.var(1);
  Dims sizes = ids.t->sizes;
  sizes.push_back(table.t->size(1));
  const std::int64_t padding = a.integer_or(2, -1);
  const Var y = t.emit("embedding", {table, ids}, std::to_string(padding), t.run.empty(sizes, table.t->dtype));
  return {t.record({table}, y, [=](Tracer& t, const Vars& g) {
    const Var gradient = prim::widened(t, g[0]);
    const Var pad = prim::compare(t, "eq", ids, prim::Number{static_cast<double>(padding), false});
    const Var zero = prim::scalar(t, "0.0", gradient.t->dtype);
    const Var kept = prim::where(t, prim::unsqueeze(t, pad, -1), zero, gradient);
    return Vars{prim::convert(t, put(t, table.t->sizes, gradient.t->dtype, {ids}, "first", kept), table.t->dtype)};
  })};
}

Vars index_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  Vars indices, inputs{x};
  std::string where;
  for (const Item& i : a[1].list) {
    where += i.var ? "x" : "_";
    if (i.var) indices.push_back(i.var);
  }
  inputs.insert(inputs.end(), indices.begin(), indices.end());
  // A mask picks as many as its values say, and takes a search.
  return {t.record({x}, t.emit("index", inputs, where, made), [=](Tracer& t, const Vars& g) {
    return Vars{put(t, x.t->sizes, g[0].t->dtype, indices, where, g[0])};
  })};
}

Vars index_select_op(Tracer& t, const Items& a) {
  const Var x = a.var(0), ids = a.var(2);
  const std::int64_t dim = op::wrap_dim(a.integer(1), x.t->rank());
  const std::string where = std::string(static_cast<std::size_t>(dim), '_') + "x";
  Dims sizes = x.t->sizes;
  sizes[static_cast<int>(dim)] = ids.t->numel();
  const Var y = t.emit("index", {x, ids}, where, t.run.empty(sizes, x.t->dtype));
  return {t.record(
      {x}, y, [=](Tracer& t, const Vars& g) { return Vars{put(t, x.t->sizes, g[0].t->dtype, {ids}, where, g[0])}; })};
}

Vars gather_op(Tracer& t, const Items& a) {
  const Var x = a.var(0), ids = a.var(2);
  const std::string dim = std::to_string(a.integer(1));
  const Var y = t.emit("gather", {x, ids}, dim, t.run.empty(ids.t->sizes, x.t->dtype));
  return {t.record({x}, y, [=](Tracer& t, const Vars& g) {
    const Var zeros = prim::full(t, x.t->sizes, "0", g[0].t->dtype);
    return Vars{t.emit("scatter_add", {zeros, ids, g[0]}, dim, t.run.empty_like(zeros.t))};
  })};
}

Vars cumsum_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  const std::string dim = std::to_string(a.integer(1));
  return {t.record({x}, t.emit("cumsum", {x}, dim, made), [dim, made](Tracer& t, const Vars& g) {
    const Var back = t.emit("flip", {g[0]}, dim, t.run.empty_like(made));
    return Vars{t.emit("flip", {t.emit("cumsum", {back}, dim, t.run.empty_like(made))}, dim, t.run.empty_like(made))};
  })};
}

/// The difference of neighbours: two slices, with what stands before and behind.
Vars diff_op(Tracer& t, const Items& a) {
  Var x = a.var(0);
  const int dim = static_cast<int>(a.integer_or(2, -1));
  Vars parts;
  if (a.optional(3)) parts.push_back(a.var(3));
  parts.push_back(x);
  if (a.optional(4)) parts.push_back(a.var(4));
  if (parts.size() > 1) x = grad::cat(t, parts, dim);
  const std::int64_t n = x.t->size(dim);
  const Var before = grad::slice(t, x, dim, 0, n - 1), behind = grad::slice(t, x, dim, 1, n);
  return {grad::sub(t, behind, before)};
}

/// arange is a count and its sum with the start.
Vars arange_op(Tracer& t, const Items& a) {
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  const Var count = prim::iota(t, made->numel());
  return {prim::convert(t, count, made->dtype)};
}

/// Tensors of one value: ones, zeros, full and the like.
Vars constant_op(Tracer& t, const Items& a) {
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  std::string value(a.op().substr(0, a.op().find('.')));
  if (value.find("zeros") != std::string::npos) value = "0";
  if (value.find("ones") != std::string::npos) value = "1";
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a.row().arguments[i] == "fill_value" && a[i].constant.is_number()) value = prim::text(a.scalar(i));
  return {prim::full(t, made->sizes, std::move(value), made->dtype)};
}

/// fill_ and zero_
Vars filled_op(Tracer& t, const Items& a) {
  const Tensor& like = a.var(0).t;
  return {prim::full(t, like->sizes, a.size() > 1 && a[1].constant.is_number() ? prim::text(a.scalar(1)) : "0",
                     like->dtype)};
}

Vars index_put_op(Tracer& t, const Items& a) {
  const Var x = a.var(0), values = a.var(2);
  Vars inputs{x};
  for (const Item& i : a[1].list)
    if (i.var) inputs.push_back(i.var);
  inputs.push_back(values);
  return {t.emit("index_put", inputs, "whole", t.run.empty_like(x.t))};
}

/// torch.rand and its kin: random numbers are drawn once.
Vars random_op(Tracer& t, const Items& a) {
  return {prim::convert(t, prim::random_like(t, a.var(0)), a.var(0).t->dtype)};
}

Vars bernoulli_op(Tracer& t, const Items& a) {
  const Var drawn = prim::compare(t, "lt", prim::random_like(t, a.var(0)), prim::Number{a.none(1) ? 0.5 : a.number(1)});
  return {prim::convert(t, drawn, a.var(0).t->dtype)};
}

}  // namespace

void add_indexing(CompiledOps& ops) {
  ops["embedding"] = embedding_op;
  ops["index"] = index_op;
  ops["index_select"] = index_select_op;
  ops["gather"] = gather_op;
  ops["cumsum"] = cumsum_op;
  ops["diff"] = diff_op;
  ops["arange"] = arange_op;
  for (const char* name : {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
                           "new_full", "empty", "empty_like", "scalar_tensor"})
    ops[name] = constant_op;
  ops["fill"] = ops["zero"] = filled_op;
  ops["index_put"] = index_put_op;
  ops["rand_like"] = random_op;
  ops["bernoulli"] = bernoulli_op;
}

}  // namespace memplan::compiled
