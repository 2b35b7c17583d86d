// Decompositions, solvers, determinants and norms of matrices (native/BatchLinearAlgebra.cpp, native/LinearAlgebra.cpp,
// gradients of FunctionsManual.cpp). Matrices that LAPACK has written are stored column by column. What cuSOLVER works
// in is not known without a device, so the rows are models.
#include <algorithm>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/rows/matrices.h"

namespace memplan {

namespace {

using linear::batch_of, linear::by_products, linear::columns_of, linear::inverse, linear::note_workspace,
    linear::rows_of, linear::svd, linear::with;

/// A matrix (or a batch of them) whose columns lie one after the other.
Tensor by_columns(Run& r, const Dims& batch, std::int64_t rows, std::int64_t columns, DType dtype) {
  Dims strides(with(batch, {1, rows}));
  std::int64_t step = checked_mul(rows, columns);
  for (int i = batch.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step = checked_mul(step, batch[i]);
  }
  return r.empty_strided(with(batch, {rows, columns}), strides, dtype);
}

Tensor copy_by_columns(Run& r, const Tensor& x) {
  return by_columns(r, batch_of(x), rows_of(x), columns_of(x), x->dtype);
}

/// What LAPACK says of each matrix, read by the host: one bool, which of a single matrix is made of another one.
void check_errors(Run& r, const Tensor& info) {
  Tensor failed = r.empty({}, DType::boolean);
  if (info->rank() == 0) Tensor any = r.empty({}, DType::boolean);
}

/// Kernels for batches get the address of each matrix.
Tensor pointers(Run& r, const Dims& batch) { return r.empty(with(batch, {1}), DType::int64); }

void two_pointers(Run& r, const Dims& batch) { Tensor first = pointers(r, batch), second = pointers(r, batch); }

struct Factors {
  Tensor lu, pivots, info;
};

Factors factorize(Run& r, const Tensor& x) {
  Factors f{copy_by_columns(r, x), r.empty(with(batch_of(x), {rows_of(x)}), DType::int32),
            r.empty(batch_of(x), DType::int32)};
  note_workspace(r, "aten::linalg_lu_factor", x);
  if (x->rank() > 2) Tensor first = pointers(r, batch_of(x));
  return f;
}

/// lu_det_P: whether the pivots are an odd permutation. The caller holds the count.
Tensor permutation_sign(Run& r, const Tensor& x) {
  const Dims lines = with(batch_of(x), {rows_of(x)});
  Tensor range = r.empty({rows_of(x)}, DType::int32), moved = r.empty(lines, DType::boolean);
  Tensor count = r.empty(batch_of(x), DType::int64);
  { Tensor wide = r.empty(lines, DType::int64); }
  moved = {};
  range = {};
  return count;
}

/// lu_solve with factors that the forward pass has kept; its columns lie one after the other.
Tensor solve_again(Run& r, const InputMeta& of) {
  const Dims batch = batch_of(of.sizes);
  const int rank = of.sizes.size();
  Tensor out = by_columns(r, batch, of.sizes[rank - 2], of.sizes[rank - 1], of.dtype);
  two_pointers(r, batch);
  return out;
}

/// linalg_det_singular's way around zeros on the diagonal, which every gradient takes.
TensorList det_backward(Run& r, Node& n, TensorList& g) {
  const InputMeta& of = n.inputs[0];
  const Dims lines = with(batch_of(of.sizes), {of.sizes[of.sizes.size() - 1]});
  Tensor scaled = op::pointwise(r, {g[0]}, of.dtype), embedded = r.empty(of.sizes, of.dtype);
  Tensor small = r.empty(lines, DType::boolean), diagonal;
  {
    Tensor zero = r.empty({}, of.dtype), smallest = r.empty({}, of.dtype);
    diagonal = r.empty(lines, of.dtype);
  }
  Tensor shift = r.empty(of.sizes, of.dtype), lu = r.empty(of.sizes, of.dtype);
  for (Tensor* done : {&shift, &diagonal, &small}) *done = {};
  return TensorList{solve_again(r, of)};
}

TensorList slogdet_backward(Run& r, Node& n, TensorList&) {
  Tensor embedded = r.empty(n.inputs[0].sizes, n.inputs[0].dtype);
  return TensorList{solve_again(r, n.inputs[0])};
}

ValueList run_det(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = r.empty(batch_of(x), x->dtype);
  Factors f = factorize(r, x);
  { Tensor product = r.empty(batch_of(x), x->dtype), odd = permutation_sign(r, x); }
  f.info = {};
  Node* node = r.record({x}, {y}, det_backward);
  r.save_output(node, y), r.save(node, f.lu), r.save(node, f.pivots);
  return {y};
}

/// Signs and logarithms of absolute values.
Factors sign_and_logarithm(Run& r, const Tensor& x) {
  Factors f = factorize(r, x);
  const Dims lines = with(batch_of(x), {rows_of(x)});
  {
    Tensor odd = permutation_sign(r, x);
    Tensor signs = r.empty(lines, x->dtype), product = r.empty(batch_of(x), x->dtype);
  }
  { Tensor logarithms = r.empty(lines, x->dtype); }
  f.info = {};
  return f;
}

ValueList run_slogdet(Run& r, Args& a) {
  Tensor x = a.tensor(0), sign = r.empty(batch_of(x), x->dtype), y = r.empty(batch_of(x), x->dtype);
  const Factors f = sign_and_logarithm(r, x);
  Node* node = r.record({x}, {sign, y}, slogdet_backward);
  r.save(node, f.lu), r.save(node, f.pivots), r.save_output(node, sign);
  return {sign, y};
}

/// Not a number where the sign is negative.
ValueList run_logdet(Run& r, Args& a) {
  Tensor x = a.tensor(0), sign = r.empty(batch_of(x), x->dtype), part = r.empty(batch_of(x), x->dtype), y, negative;
  const Factors f = sign_and_logarithm(r, x);
  {
    negative = r.empty(batch_of(x), DType::boolean);
    Tensor number = r.empty({}, x->dtype);
    y = r.empty(batch_of(x), x->dtype);
  }
  Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList& g) {
    Tensor zero = r.empty({}, g[0]->dtype), kept = r.empty_like(g[0]);
    zero = {};
    return slogdet_backward(r, n, g);
  });
  r.save(node, negative), r.save(node, f.lu), r.save(node, f.pivots), r.save(node, sign);
  return {y};
}

/// One of the two is what a single matrix is solved with, the other what batches are.
void solving(Run& r, const Dims& batch) {
  if (batch.empty())
    Tensor info = r.empty({}, DType::int32);
  else
    two_pointers(r, batch);
}

ValueList solve(Run& r, Args& a, bool check) {
  Tensor x = a.tensor(0), b = a.tensor(1);
  const bool vector = b->rank() == 1 || b->rank() == x->rank() - 1;
  Tensor y = vector ? r.empty(b->sizes, b->dtype) : by_columns(r, batch_of(x), rows_of(b), columns_of(b), b->dtype);
  Factors f = factorize(r, x);
  solving(r, batch_of(x));
  if (check) check_errors(r, f.info);
  Node* node = r.record({x, b}, {y}, [](Run& r, Node& n, TensorList&) {
    TensorList out(2);
    out[1] = r.empty_like(n.saved[2]);
    solving(r, batch_of(n.inputs[0].sizes));
    if (n.wants(0)) {
      Tensor product = r.empty(n.inputs[0].sizes, n.inputs[0].dtype);
      out[0] = r.empty(n.inputs[0].sizes, n.inputs[0].dtype);
    }
    return out;
  });
  r.save(node, f.lu), r.save(node, f.pivots), r.save_output(node, y);
  return {y, f.info};
}

TensorList cholesky_backward(Run& r, Node& n, TensorList&) {
  const InputMeta& of = n.inputs[0];
  const auto matrix = [&] { return r.empty(of.sizes, of.dtype); };
  Tensor first = matrix(), product = matrix();
  first = {};
  Tensor half = matrix(), turned = matrix(), sum = matrix();
  for (Tensor* done : {&product, &turned, &half}) *done = {};
  Tensor once = solve_again(r, of);
  sum = {};
  return TensorList{solve_again(r, of)};
}

ValueList cholesky(Run& r, const Tensor& x, bool check) {
  Tensor y = copy_by_columns(r, x), info = r.empty(batch_of(x), DType::int32);
  note_workspace(r, "aten::linalg_cholesky", x);
  if (x->rank() > 2) Tensor first = pointers(r, batch_of(x));
  if (check) check_errors(r, info);
  Node* node = r.record({x}, {y}, cholesky_backward);
  r.save_output(node, y);
  return {y, info};
}

TensorList qr_backward(Run& r, Node& n, TensorList&) {
  const InputMeta& of = n.inputs[0];
  const Tensor q = n.saved[0], upper = n.saved[1];
  const auto small = [&] { return r.empty(upper->sizes, upper->dtype); };
  Tensor first = small(), second = small();
  first = {};
  Tensor third = small(), fourth = small(), product = r.empty(of.sizes, of.dtype);
  for (Tensor* done : {&second, &fourth, &third}) *done = {};
  Tensor sum = r.empty(of.sizes, of.dtype);
  product = {};
  return TensorList{solve_again(r, of)};
}

ValueList run_qr(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims batch = batch_of(x);
  note_workspace(r, a.op(), x);
  const std::int64_t m = rows_of(x), n = columns_of(x), k = std::min(m, n);
  const bool complete = a.string_or(1, "reduced") == "complete";
  Tensor q = by_columns(r, batch, m, complete ? m : k, x->dtype),
         upper = by_columns(r, batch, complete ? m : k, n, x->dtype);
  {
    Tensor tau = r.empty(with(batch, {k}), x->dtype);
    for (int i = 0; i < 2; ++i) Tensor info = r.empty(batch, DType::int32);
  }
  Node* node = r.record({x}, {q, upper}, qr_backward);
  r.save_output(node, q), r.save_output(node, upper);
  return {q, upper};
}

ValueList eigh(Run& r, const Tensor& x, bool values_alone) {
  note_workspace(r, "aten::linalg_eigh", x);
  Tensor vectors = copy_by_columns(r, x), values = r.empty(with(batch_of(x), {columns_of(x)}), x->dtype);
  {
    Tensor info = r.empty(batch_of(x), DType::int32);
    check_errors(r, info);
  }
  Node* node = r.record({x}, values_alone ? TensorList{values} : TensorList{values, vectors}, by_products(2));
  r.save(node, values), r.save(node, vectors);
  return values_alone ? ValueList{values} : ValueList{values, vectors};
}

}  // namespace

namespace linear {

/// linalg_inv_ex: the inverse solves a system whose right side is the identity.
ValueList inverse(Run& r, const Tensor& x, bool check) {
  const Dims batch = batch_of(x);
  Tensor y = copy_by_columns(r, x), info = r.empty(batch, DType::int32);
  note_workspace(r, "aten::linalg_inv", x);
  {
    Tensor factors = copy_by_columns(r, x), pivots = r.empty(with(batch, {rows_of(x)}), DType::int32);
    if (!batch.empty()) Tensor first = pointers(r, batch);
    two_pointers(r, batch);
    for (Tensor* done : {&pivots, &factors}) *done = {};
  }
  if (check) check_errors(r, info);
  Node* node = r.record({x}, {y}, by_products(3));
  r.save_output(node, y);
  return {y, info};
}

ValueList svd(Run& r, const Tensor& x, bool full, bool values_alone) {
  note_workspace(r, "aten::linalg_svd", x);
  const Dims batch = batch_of(x);
  const std::int64_t m = rows_of(x), n = columns_of(x), k = std::min(m, n);
  Tensor u = by_columns(r, batch, m, full ? m : k, x->dtype), vh = r.empty(with(batch, {full ? n : k, n}), x->dtype);
  Tensor s = r.empty(with(batch, {k}), x->dtype), info = r.empty(batch, DType::int32);
  {
    Tensor copy = copy_by_columns(r, x);
    if (m != n && !full) Tensor whole = by_columns(r, batch, std::max(m, n), std::max(m, n), x->dtype);
  }
  check_errors(r, info);
  Node* node = r.record({x}, values_alone ? TensorList{s} : TensorList{u, s, vh}, [](Run& r, Node& n, TensorList&) {
    Tensor scaled = r.empty_like(n.saved[2]);
    return TensorList{r.empty(n.inputs[0].sizes, n.inputs[0].dtype)};
  });
  r.save(node, s), r.save(node, u), r.save(node, vh);
  return values_alone ? ValueList{s} : ValueList{u, s, vh};
}

}  // namespace linear

void register_linear_algebra(OpTable& t) {
  t.add(
      "aten::linalg_inv", "A", [](Run& r, Args& a) -> ValueList { return {inverse(r, a.tensor(0), true)[0]}; },
      Fidelity::modelled);
  t.add(
      "aten::linalg_inv_ex", "A, check_errors=False",
      [](Run& r, Args& a) { return inverse(r, a.tensor(0), a.boolean(1)); }, Fidelity::modelled);
  t.add("aten::linalg_det", "A", run_det, Fidelity::modelled);
  t.add("aten::linalg_slogdet", "A", run_slogdet, Fidelity::modelled);
  t.add("aten::logdet", "self", run_logdet, Fidelity::modelled);
  t.add(
      "aten::linalg_solve", "A, B, left=True", [](Run& r, Args& a) -> ValueList { return {solve(r, a, true)[0]}; },
      Fidelity::modelled);
  t.add(
      "aten::linalg_solve_ex", "A, B, left=True, check_errors=False",
      [](Run& r, Args& a) { return solve(r, a, a.boolean(3)); }, Fidelity::modelled);
  t.add(
      "aten::linalg_cholesky", "self, upper=False",
      [](Run& r, Args& a) -> ValueList { return {cholesky(r, a.tensor(0), true)[0]}; }, Fidelity::modelled);
  t.add(
      "aten::linalg_cholesky_ex", "self, upper=False, check_errors=False",
      [](Run& r, Args& a) { return cholesky(r, a.tensor(0), a.boolean(2)); }, Fidelity::modelled);
  t.add(
      "aten::cholesky", "self, upper=False",
      [](Run& r, Args& a) -> ValueList { return {cholesky(r, a.tensor(0), true)[0]}; }, Fidelity::modelled);
  t.add("aten::linalg_qr", "A, mode=None", run_qr, Fidelity::modelled);
  t.add(
      "aten::linalg_eigh", "A, UPLO=None", [](Run& r, Args& a) { return eigh(r, a.tensor(0), false); },
      Fidelity::modelled);
  t.add(
      "aten::linalg_eigvalsh", "A, UPLO=None", [](Run& r, Args& a) { return eigh(r, a.tensor(0), true); },
      Fidelity::modelled);
  t.add(
      "aten::linalg_svd", "A, full_matrices=True, driver=None",
      [](Run& r, Args& a) { return svd(r, a.tensor(0), a.boolean(1), false); }, Fidelity::modelled);
  t.add(
      "aten::svd", "self, some=True, compute_uv=True",
      [](Run& r, Args& a) { return svd(r, a.tensor(0), !a.boolean(1), false); }, Fidelity::modelled);
  t.add(
      "aten::linalg_svdvals", "A, driver=None", [](Run& r, Args& a) { return svd(r, a.tensor(0), false, true); },
      Fidelity::modelled);
}

}  // namespace memplan
