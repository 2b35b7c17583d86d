// Losses inside of the compiled module.
#include "estimators/runtime/torch/compiled/op_table.h"

namespace memplan::compiled {

namespace {

using prim::binary;
using prim::Number;

/// nll_loss_backward. The scatter of -1 into zeros is a comparison of positions (joint_graph.py,
/// scatter_upon_const_tensor).
Var nll_gradient(Tracer& t, const Var& gradient, const Var& like, const Var& target, const Var& weight_sum,
                 std::int64_t ignored, bool mean) {
  const Var scaled = mean ? binary(t, "div", gradient, weight_sum) : gradient;
  const Var column = prim::unsqueeze(t, target, 1);
  const Var counts = prim::compare(t, "ne", column, Number{static_cast<double>(ignored), false});
  const Var index = prim::where(t, counts, column, prim::scalar(t, "0", DType::int64));
  const std::int64_t classes = like.t->size(1);
  const Var positions = prim::view(t, prim::iota(t, classes), {1, classes});
  const Var hit = prim::compare(t, "eq", prim::expand(t, index, like.t->sizes), positions);
  const Var zero = t.emit("scalar_tensor", {}, "0", t.run.empty({}, like.t->dtype));
  const Var one = t.emit("scalar_tensor", {}, "-1.0", t.run.empty({}, like.t->dtype));
  const Var row = prim::where(t, hit, one, zero);
  const Var each = prim::where(t, counts, scaled, prim::scalar(t, "0.0", scaled.t->dtype));
  return binary(t, "mul", row, each);
}

/// nll_loss_forward over [N, C] and [N].
Var nll(Tracer& t, const Var& log_probabilities, const Var& target, std::int64_t ignored, bool mean) {
  const Var x = log_probabilities;
  const Var counts = prim::compare(t, "ne", target, Number{static_cast<double>(ignored), false});
  const Var index = prim::where(t, counts, target, prim::scalar(t, "0", DType::int64));
  const Var column = prim::unsqueeze(t, index, 1);
  const Var picked = prim::squeeze(t, t.emit("gather", {x, column}, "1", t.run.empty(column.t->sizes, x.t->dtype)), 1);
  const Var each = prim::where(t, counts, prim::unary(t, "neg", picked), prim::scalar(t, "0.0", x.t->dtype));
  const Var many = mean ? prim::convert(t, prim::sum(t, counts, {}, false), x.t->dtype) : Var{};
  const Var total = prim::sum(t, each, {}, false);
  const Var loss = mean ? binary(t, "div", total, many) : total;
  return t.record(
      {x}, loss, [=](Tracer& t, const Vars& g) { return Vars{nll_gradient(t, g[0], x, target, many, ignored, mean)}; });
}

Vars cross_entropy_op(Tracer& t, const Items& a) {
  Var x = a.var(0), y = a.var(1);
  if (t.autocast) x = grad::convert(t, x, DType::float32);
  // Pixels: the classes come last, and the rest is one row after the other.
  if (x.t->rank() > 2) {
    Dims order{0};
    for (int d = 2; d < x.t->rank(); ++d) order.push_back(d);
    order.push_back(1);
    x = grad::reshape(t, grad::permute(t, x, order), {-1, x.t->size(1)});
    y = prim::reshape(t, y, {-1});
  }
  const bool mean = a.none(3) || a.integer(3) != 2;
  return {nll(t, grad::log_softmax(t, x, 1), y, a.integer_or(4, -100), mean)};
}

Vars mse_op(Tracer& t, const Items& a) {
  const Var difference = grad::sub(t, a.var(0), a.var(1));
  const Var squares = t.record({difference}, prim::unary(t, "pow", difference, prim::text(Number{2, false})),
                               [difference](Tracer& t, const Vars& g) {
                                 return Vars{binary(t, "mul", g[0], binary(t, "mul", difference, Number{2}))};
                               });
  return {grad::mean(t, squares, {}, false)};
}

}  // namespace

void add_losses(CompiledOps& ops) {
  ops["cross_entropy_loss"] = cross_entropy_op;
  ops["mse_loss"] = mse_op;
}

}  // namespace memplan::compiled
