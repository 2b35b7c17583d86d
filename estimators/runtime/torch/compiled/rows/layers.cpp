// Products, convolutions, pooling, dropout.
#include <fmt/format.h>

#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

Vars linear_op(Tracer& t, const Items& a) { return {grad::linear(t, a.var(0), a.var(1), a.optional(2))}; }
Vars matmul_op(Tracer& t, const Items& a) { return {grad::matmul(t, a.var(0), a.var(1))}; }
Vars mm_op(Tracer& t, const Items& a) { return {grad::mm(t, a.var(0), a.var(1))}; }
Vars bmm_op(Tracer& t, const Items& a) { return {grad::bmm(t, a.var(0), a.var(1))}; }
Vars addmm_op(Tracer& t, const Items& a) { return {grad::addmm(t, a.var(0), a.var(1), a.var(2))}; }

Vars baddbmm_op(Tracer& t, const Items& a) {
  Var product = grad::bmm(t, a.var(1), a.var(2));
  if (!a.none(4) && a.number(4) != 1) product = grad::mul(t, product, a.scalar(4));
  const Var self = !a.none(3) && a.number(3) != 1 ? grad::mul(t, a.var(0), a.scalar(3)) : a.var(0);
  return {grad::add(t, self, product)};
}

/// Everything that is no tensor, so that two convolutions of the same tensors with other strides differ.
std::string settings(const Items& a, std::size_t from) {
  std::string s;
  for (std::size_t i = from; i < a.size(); ++i) {
    if (a[i].is_list || std::holds_alternative<ValueList>(a[i].constant.v))
      s += prim::text(a.dims(i)) + " ";
    else if (a[i].constant.is_number())
      s += prim::text(a.scalar(i)) + " ";
  }
  return s;
}

Vars convolution_op(Tracer& t, const Items& a) {
  Var x = a.var(0);
  const Var w = a.var(1), bias = a.optional(2);
  const auto [scratch, in_layout] = scratch_of_layouts(t, a);
  const Tensor made = scratch.result;
  const bool transposed = a.op().rfind("conv_transpose", 0) == 0 || (a.op() == "convolution" && a.boolean(6));
  const std::string how = (transposed ? "transposed " : "") + settings(a, 3);
  Vars inputs{x, w};
  if (bias) inputs.push_back(bias);
  const Var y = t.emit("convolution", inputs, how, made);
  t.takes({y}, scratch.forward, in_layout.forward);
  return {t.record(
      {x, w, bias}, y, [=, taken = scratch.backward, taken_in_layout = in_layout.backward](Tracer& t, const Vars& g) {
        Dims all;
        for (int d = 0; d < g[0].t->rank(); ++d)
          if (d != 1) all.push_back(d);
        Vars grads(3);
        if (bias) grads[2] = prim::sum(t, g[0], all, false);
        const Vars pieces = t.emit_several("convolution_backward", {g[0], x, w}, how,
                                           {x.wants() ? t.run.empty_like(x.t) : Tensor(), t.run.empty_like(w.t)});
        t.takes({pieces[1]}, taken, taken_in_layout);
        if (x.wants()) grads[0] = pieces[0];
        grads[1] = pieces[1];
        return grads;
      })};
}

/// Where in its window each greatest element lies takes one byte, and positions are computed from it.
Vars max_pool_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  const std::string how = settings(a, 1);
  const Vars pieces =
      t.emit_several("_low_memory_max_pool_with_offsets", {x}, how, {made, t.run.empty_like(made, DType::int8)});
  const Var positions =
      t.emit("_low_memory_max_pool_offsets_to_indices", {pieces[1]}, how, t.run.empty_like(made, DType::int64));
  const Var y = t.record({x}, pieces[0], [=](Tracer& t, const Vars& g) {
    return Vars{t.emit("max_pool2d_with_indices_backward", {g[0], x, positions}, how, t.run.empty_like(x.t))};
  });
  return {y, positions};
}

Vars avg_pool_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  const std::string how = settings(a, 1);
  return {t.record({x}, t.emit("avg_pool2d", {x}, how, made), [x, how](Tracer& t, const Vars& g) {
    return Vars{t.emit("avg_pool2d_backward", {g[0], x}, how, t.run.empty_like(x.t))};
  })};
}

/// To one element it is a mean.
Vars adaptive_pool_op(Tracer& t, const Items& a) {
  const Var x = a.var(0);
  const std::vector<std::int64_t> to = a.integers(1);
  bool one = true;
  for (const std::int64_t n : to) one = one && n == 1;
  if (one) return {grad::mean(t, x, {-1, -2}, true)};
  const Tensor made = call_op(t.run, a.row(), a.values(), {})[0].tensor();
  return {
      t.record({x}, t.emit("_adaptive_avg_pool2d", {x}, prim::text(a.dims(1)), made), [x](Tracer& t, const Vars& g) {
        return Vars{t.emit("_adaptive_avg_pool2d_backward", {g[0], x}, {}, t.run.empty_like(x.t))};
      })};
}

Vars dropout_op(Tracer& t, const Items& a) {
  if (!a.boolean(2)) return {a.var(0)};
  const bool in_place = a.op().find("dropout_") != std::string_view::npos;
  return {in_place ? grad::dropout_in_place(t, a.var(0), a.number(1)) : grad::dropout(t, a.var(0), a.number(1))};
}

Vars softmax_op(Tracer& t, const Items& a) {
  const Var x = grad::convert(t, a.var(0), a.dtype_or(2, a.var(0).t->dtype));
  const int dim = static_cast<int>(a.integer(1));
  return {a.op().find("log_softmax") != std::string_view::npos ? grad::log_softmax(t, x, dim)
                                                               : grad::softmax(t, x, dim)};
}

}  // namespace

void add_layers(CompiledOps& ops) {
  ops["linear"] = linear_op;
  ops["matmul"] = matmul_op;
  ops["mm"] = mm_op;
  ops["bmm"] = bmm_op;
  ops["addmm"] = addmm_op;
  ops["baddbmm"] = baddbmm_op;
  for (const char* name : {"conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d"})
    ops[name] = convolution_op;
  ops["max_pool2d"] = max_pool_op;
  ops["avg_pool2d"] = avg_pool_op;
  ops["adaptive_avg_pool2d"] = adaptive_pool_op;
  ops["dropout"] = dropout_op;
  ops["softmax"] = ops["log_softmax"] = softmax_op;
}

}  // namespace memplan::compiled
