// Matrix products and their gradients (torch/csrc/autograd/FunctionsManual.cpp), which depend on how the operands lie.
#include <algorithm>

#include "estimators/runtime/torch/compiled/autograd.h"

namespace memplan::compiled::grad {

namespace {

bool column_major(const TensorBody& t) { return t.strides[0] == 1 && t.strides[1] == t.sizes[0]; }

/// mm_mat1_backward
Var left_gradient(Tracer& t, const Var& g, const Var& left, const Var& right) {
  if (column_major(*left.t)) return prim::t(t, prim::mm(t, right, prim::t(t, g)));
  return prim::mm(t, g, prim::t(t, right));
}

/// mm_mat2_backward
Var right_gradient(Tracer& t, const Var& g, const Var& left, const Var& right) {
  if (column_major(*right.t)) return prim::t(t, prim::mm(t, prim::t(t, g), left));
  return prim::mm(t, prim::t(t, left), g);
}

Var swapped(Tracer& t, const Var& a) { return prim::permute(t, a, {0, 2, 1}); }

}  // namespace

Var mm(Tracer& t, const Var& a, const Var& b) {
  return t.record({a, b}, prim::mm(t, a, b), [a, b](Tracer& t, const Vars& g) {
    Vars grads(2);
    if (b.wants()) grads[1] = right_gradient(t, g[0], a, b);
    if (a.wants()) grads[0] = left_gradient(t, g[0], a, b);
    return grads;
  });
}

Var bmm(Tracer& t, const Var& a, const Var& b) {
  return t.record({a, b}, prim::bmm(t, a, b), [a, b](Tracer& t, const Vars& g) {
    Vars grads(2);
    if (b.wants()) grads[1] = prim::bmm(t, swapped(t, a), g[0]);
    if (a.wants()) grads[0] = prim::bmm(t, g[0], swapped(t, b));
    return grads;
  });
}

Var addmm(Tracer& t, const Var& bias, const Var& a, const Var& b) {
  const Var result = t.emit("addmm", {bias, a, b}, {}, op::mm(t.run, a.t, b.t));
  return t.record({bias, a, b}, result, [a, b](Tracer& t, const Vars& g) {
    Vars grads(3);
    grads[0] = g[0];  // the engine sums it up
    if (a.wants()) grads[1] = left_gradient(t, g[0], a, b);
    if (b.wants()) grads[2] = right_gradient(t, g[0], a, b);
    return grads;
  });
}

namespace {

/// should_fold (aten/src/ATen/native/LinearAlgebra.cpp): a product of many matrices with one is one product.
bool folds(const Var& larger, const Var& smaller) {
  if (larger.t->rank() < 3 || smaller.t->rank() > 2) return false;
  if (smaller.wants()) return true;
  if (larger.t->rank() == 2) return false;
  const Dims& s = larger.t->sizes;
  const Dims& w = larger.t->strides;
  for (int d = 0; d + 2 < s.size(); ++d)
    if (w[d] != s[d + 1] * w[d + 1]) return false;
  return true;
}

Var fold(Tracer& t, const Var& a, const Var& b) {
  Dims rows = a.t->sizes;
  rows.erase(rows.size() - 1);
  Dims out = rows;
  out.push_back(b.t->size(1));
  const Var flat = reshape(t, a, {rows.product(), a.t->size(-1)});
  return view(t, mm(t, flat, b), out);
}

}  // namespace

Var matmul(Tracer& t, const Var& a, const Var& b) {
  const int ra = a.t->rank(), rb = b.t->rank();
  if (ra == 2 && rb == 2) return mm(t, a, b);
  if (ra >= 2 && rb == 1) return squeeze(t, matmul(t, a, unsqueeze(t, b, 1)), -1);
  if (ra == 1 && rb >= 2) return squeeze(t, matmul(t, unsqueeze(t, a, 0), b), -2);
  if (ra == 1) return sum(t, mul(t, a, b), {}, false);
  if (rb == 2 && folds(a, b)) return fold(t, a, b);
  if (ra == 2 && folds(b, a)) return transpose(t, fold(t, transpose(t, b, -1, -2), transpose(t, a, 0, 1)), -1, -2);
  Dims left = a.t->sizes, right = b.t->sizes;
  const std::int64_t n = left[ra - 2], inner = left[ra - 1], p = right[rb - 1];
  Dims batch_a, batch_b;
  for (int d = 0; d + 2 < ra; ++d) batch_a.push_back(left[d]);
  for (int d = 0; d + 2 < rb; ++d) batch_b.push_back(right[d]);
  const Dims batch = op::broadcast(batch_a, batch_b);
  Dims wide_a = batch, wide_b = batch, out = batch;
  for (const std::int64_t s : {n, inner}) wide_a.push_back(s);
  for (const std::int64_t s : {inner, p}) wide_b.push_back(s);
  for (const std::int64_t s : {n, p}) out.push_back(s);
  const std::int64_t many = batch.product();
  const Var x = reshape(t, expand(t, a, wide_a), {many, n, inner}),
            y = reshape(t, expand(t, b, wide_b), {many, inner, p});
  return view(t, bmm(t, x, y), out);
}

/// at::linear: with a bias two dimensions, or more that lie one after the other, are one addmm.
Var linear(Tracer& t, const Var& a, const Var& weight, const Var& bias) {
  if (!bias || (a.t->rank() > 2 && !is_contiguous(*a.t))) {
    const Var product = matmul(t, a, transpose(t, weight, 0, 1));
    return bias ? add(t, product, bias) : product;
  }
  if (a.t->rank() == 1) return squeeze(t, linear(t, unsqueeze(t, a, 0), weight, bias), 0);
  if (a.t->rank() == 2) return addmm(t, bias, a, transpose(t, weight, 0, 1));
  Dims out = a.t->sizes;
  const int last = out.size() - 1;
  const Var flat = view(t, a, {a.t->numel() / std::max<std::int64_t>(1, out[last]), out[last]});
  out[last] = weight.t->size(0);
  return view(t, addmm(t, bias, flat, transpose(t, weight, 0, 1)), out);
}

}  // namespace memplan::compiled::grad
