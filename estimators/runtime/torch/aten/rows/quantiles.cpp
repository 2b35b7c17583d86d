// Quantiles, and means of what is a number.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/rows/reduced.h"

namespace memplan {

namespace {

Dims ones(int rank) {
  Dims sizes;
  for (int i = 0; i < rank; ++i) sizes.push_back(1);
  return sizes;
}

/// nansum over the count of what is a number.
ValueList run_nanmean(Run& r, Args& a) {
  Tensor x = a.tensor(0), count;
  if (!is_floating(x->dtype)) return call_op(r, "aten::mean.dim", {a[0], a[1], a[2], a[3]});
  const Dims dims = reduced::dims_of(x, a, 1);
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor numbers = op::pointwise(r, {x}, DType::boolean);
    count = op::sum(r, numbers, dims, a.boolean(2));
  }
  return {op::div(r, op::call(r, "aten::nansum", {x, a[1], a[2], a[3]}), count)};
}

/// quantile_compute (native/Sorting.cpp): the last dimension is sorted, the two neighbours of each rank are gathered
/// and the lower one moves towards the upper one.
Tensor between_neighbours(Run& r, const Tensor& sorted, std::int64_t ranks, bool nan_too) {
  const DType dtype = sorted->dtype;
  Dims sizes = sorted->sizes;
  sizes[sizes.size() - 1] = ranks;
  Tensor at;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    const Dims line{sorted->rank() - 1};
    if (nan_too) {
      Tensor numbers = op::pointwise(r, {sorted}, DType::boolean);
      Tensor count = op::sum(r, numbers, line, true), highest = op::pointwise(r, {count}, DType::int64);
      at = r.empty(sizes, dtype);
      highest = count = numbers = Tensor();
      Tensor negative = op::pointwise(r, {at}, DType::boolean);
    } else {
      Tensor highest = r.empty({ranks}, dtype), missing = op::pointwise(r, {sorted}, DType::boolean);
      Tensor any = op::reduced(r, missing, line, true, DType::boolean);
      missing = Tensor();
      at = r.empty(sizes, dtype);
      highest = any = Tensor();
    }
  }
  const auto gathered = [&](const Tensor& places) { return op::call(r, "aten::gather", {sorted, -1, places}); };
  Tensor below = r.empty(sizes, DType::int64), y = gathered(below), weights = r.empty(sizes, dtype);
  Tensor above = r.empty(sizes, DType::int64), upper = gathered(above);
  return op::call(r, "aten::lerp_.Tensor", {y, upper, weights});
}

ValueList run_quantile(Run& r, Args& a) {
  const bool all = a.none(2), keep = a.boolean(3);
  Tensor x = a.tensor(0), q = a[1].is_tensor() ? a.tensor(1) : r.empty({}, x->dtype);
  const int rank = x->rank(), dim = all ? 0 : op::wrap_dim(a.integer(2), rank);
  const bool turned = !all && dim != rank - 1;
  Tensor line = all ? op::flatten(r, x, 0, -1) : turned ? op::transpose(r, op::unsqueeze(r, x, rank), dim, rank) : x;
  Tensor sorted = op::call(r, "aten::sort", {line, -1});
  Tensor out = between_neighbours(r, sorted, q->rank() == 0 ? 1 : q->sizes[0], a.op().starts_with("aten::nan"));
  // Ranks stand last: those of several come first, that of one takes the place of the dimension.
  if (turned && !keep) out = op::squeeze(r, out, dim);
  if (q->rank() == 0) {
    if (all && keep) return {op::reshape(r, out, ones(rank))};
    return {keep && !turned ? out : op::squeeze(r, out, out->rank() - 1)};
  }
  if (keep && !turned) out = op::unsqueeze(r, out, out->rank() - 1);
  if (keep && all)
    for (int i = 1; i < rank; ++i) out = op::unsqueeze(r, out, 0);
  Dims order{out->rank() - 1};
  for (int i = 0; i + 1 < out->rank(); ++i) order.push_back(i);
  return {op::permute(r, out, order)};
}

}  // namespace

void register_quantiles(OpTable& t) {
  t.add("aten::nanmean", "self, dim=None, keepdim=False, dtype=None", run_nanmean);
  for (const char* name : {"aten::quantile", "aten::quantile.scalar", "aten::nanquantile", "aten::nanquantile.scalar"})
    t.add(name, "self, q, dim=None, keepdim=False, interpolation=None", run_quantile);
}

}  // namespace memplan
