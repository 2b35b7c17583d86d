// Matrix products: aten/src/ATen/native/{Linear,LinearAlgebra}.cpp and native/cuda/Blas.cpp of PyTorch 2.11.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/setup/setup.h"

namespace memplan {
namespace op {
namespace {

/// cuBLAS takes a matrix whose one dimension is dense and whose other does not overlap; others are cloned for the
/// call (prepare_matrix_for_cublas).
bool cublas_takes(const TensorBody& t) {
  const int a = t.rank() - 2, b = t.rank() - 1;
  const auto dense = [&](int fast, int lead) {
    return t.strides[fast] == 1 && t.strides[lead] >= std::max<std::int64_t>(1, t.sizes[fast]);
  };
  return dense(a, b) || dense(b, a);
}

Tensor prepared(Run& r, const Tensor& t) {
  if (cublas_takes(*t)) return t;
  return r.empty(t->sizes, t->dtype);
}

void check_product(std::int64_t a, std::int64_t b) {
  if (a != b)
    fail_input("the inner dimensions of a matrix product differ", {}, "the model may fix a dimension that you changed");
}

bool column_major(const Dims& sizes, const Dims& strides) { return strides[0] == 1 && strides[1] == sizes[0]; }

/// mm_mat1_grad and mm_mat2_grad of FunctionsManual.cpp: column-major operands get a column-major gradient.
Tensor mat1_grad(Run& r, const Tensor& g, const Tensor& mat2, const Dims& sizes, const Dims& strides) {
  if (column_major(sizes, strides)) return t(r, mm(r, mat2, t(r, g)));
  return mm(r, g, t(r, mat2));
}
Tensor mat2_grad(Run& r, const Tensor& g, const Tensor& mat1, const Dims& sizes, const Dims& strides) {
  if (column_major(sizes, strides)) return t(r, mm(r, t(r, g), mat1));
  return mm(r, t(r, mat1), g);
}

/// Node of mm and addmm; `first` is the position of mat1 among the inputs (1 for addmm, whose input 0 is the bias).
void record_mm(Run& r, const TensorList& inputs, const Tensor& y, int first) {
  const Tensor &a = inputs[first], &b = inputs[first + 1];
  Node* node =
      r.record(inputs, {y},
               [first, sa = a->sizes, ta = a->strides, sb = b->sizes, tb = b->strides](Run& r, Node& n, TensorList& g) {
                 TensorList out(first + 2);
                 const bool want_a = n.wants(first), want_b = n.wants(first + 1);
                 // saved: mat2 if mat1 wants a gradient, mat1 if mat2 wants one, and formulas run, both in alphabetical
                 // order of PyTorch's names: mat1, mat2, self for addmm; mat2, self for mm.
                 const Tensor &kept_b = first == 1 ? n.saved.back() : n.saved.front(),
                              &kept_a = first == 1 ? n.saved.front() : n.saved.back();
                 auto grad_a = [&] {
                   if (want_a) out[first] = mat1_grad(r, g[0], kept_b, sa, ta);
                 };
                 auto grad_b = [&] {
                   if (want_b) out[first + 1] = mat2_grad(r, g[0], kept_a, sb, tb);
                 };
                 if (first == 1)
                   grad_a(), grad_b();
                 else
                   grad_b(), grad_a();
                 if (first == 1 && n.wants(0)) out[0] = g[0];
                 return out;
               });
  if (!node) return;
  if (first == 1 && node->wants(first + 1)) r.save(node, a);
  if (node->wants(first)) r.save(node, b);
  if (first == 0 && node->wants(first + 1)) r.save(node, a);
}

}  // namespace

Tensor mm(Run& r, const Tensor& a, const Tensor& b) {
  if (a->rank() != 2 || b->rank() != 2) fail_input("a matrix product of tensors that are not matrices");
  check_product(a->sizes[1], b->sizes[0]);
  Tensor y = r.dispatched("aten::mm", [&] {
    Tensor y = r.empty({a->sizes[0], b->sizes[1]}, a->dtype);
    Tensor pa = prepared(r, a), pb = prepared(r, b);
    r.use_cublas();
    return TensorList{y};
  })[0];
  record_mm(r, {a, b}, y, 0);
  return y;
}

Tensor addmm(Run& r, const Tensor& bias, const Tensor& a, const Tensor& b) {
  check_product(a->sizes[1], b->sizes[0]);
  const bool lt = bias->rank() == 1 && is_contiguous(*bias) && bias->sizes[0] == b->sizes[1] && is_floating(a->dtype) &&
                  b->sizes[0] > 1 && b->sizes[1] > 1;
  Tensor y = r.dispatched("aten::addmm", [&] {
    Tensor y = r.empty({a->sizes[0], b->sizes[1]}, a->dtype);
    Tensor pa = prepared(r, a), pb = prepared(r, b);
    if (lt)
      r.use_cublas_lt();
    else
      r.use_cublas();
    return TensorList{y};
  })[0];
  record_mm(r, {bias, a, b}, y, 1);
  return y;
}

Tensor bmm(Run& r, const Tensor& a, const Tensor& b) {
  if (a->rank() != 3 || b->rank() != 3) fail_input("a batched matrix product of tensors that are not 3-dimensional");
  check_product(a->sizes[2], b->sizes[1]);
  Tensor y = r.dispatched("aten::bmm", [&] {
    Tensor y = r.empty({a->sizes[0], a->sizes[1], b->sizes[2]}, a->dtype);
    Tensor pa = prepared(r, a), pb = prepared(r, b);
    r.use_cublas();
    return TensorList{y};
  })[0];
  Node* node = r.record({a, b}, {y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(1)) out[1] = bmm(r, transpose(r, n.saved.back(), 1, 2), g[0]);
    if (n.wants(0)) out[0] = bmm(r, g[0], transpose(r, n.saved.front(), 1, 2));
    return out;
  });
  if (node) {
    if (node->wants(0)) r.save(node, b);
    if (node->wants(1)) r.save(node, a);
  }
  return y;
}

namespace {

/// should_fold: a product of an N-D tensor with a matrix becomes one mm where that costs no copy, or where the
/// matrix wants a gradient.
bool should_fold(const Tensor& a, const Tensor& b) {
  const bool a_larger = a->rank() >= b->rank();
  const Tensor& large = a_larger ? a : b;
  const Tensor& small = a_larger ? b : a;
  if (!(large->rank() >= 3 && small->rank() <= 2)) return false;
  if (small->requires_grad() || small->shows_trained) return true;
  if (a->rank() == 2) return false;
  if (large->numel() == 0) return true;
  for (int i = 0; i + 2 < large->rank(); ++i)
    if (large->strides[i] != large->strides[i + 1] * large->sizes[i + 1]) return false;
  return true;
}

Tensor mv(Run& r, const Tensor& a, const Tensor& x) {
  Tensor y = r.empty({a->sizes[0]}, a->dtype);
  r.use_cublas();
  Node* node = r.record({a, x}, {y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) out[0] = mul(r, unsqueeze(r, g[0], 1), unsqueeze(r, n.saved.front(), 0));  // grad.ger(vec)
    if (n.wants(1)) out[1] = mv(r, t(r, n.saved.back()), g[0]);
    return out;
  });
  if (node) {
    if (node->wants(0)) r.save(node, x);
    if (node->wants(1)) r.save(node, a);
  }
  return y;
}

}  // namespace

Tensor matmul(Run& r, const Tensor& a, const Tensor& b) {
  const int ra = a->rank(), rb = b->rank();
  if (ra == 0 || rb == 0) fail_input("a matrix product with a scalar");
  if (ra == 1 && rb == 1) return dot(r, a, b);
  if (ra == 2 && rb == 1) return mv(r, a, b);
  if (ra == 1 && rb == 2) return squeeze(r, mm(r, unsqueeze(r, a, 0), b), 0);
  if (ra == 2 && rb == 2) return mm(r, a, b);
  if (should_fold(a, b)) {
    const bool swap = rb > ra;
    const Tensor large = swap ? transpose(r, b, -2, -1) : a;
    const Tensor small = !swap ? b : (ra == 2 ? t(r, a) : a);
    Dims shape;
    for (int i = 0; i + 1 < large->rank(); ++i) shape.push_back(large->sizes[i]);
    const std::int64_t rows = shape.product();
    Tensor folded = reshape(r, large, {rows, large->sizes.back()});
    if (small->rank() == 1) return unsafe_view(r, mv(r, folded, small), shape);
    shape.push_back(small->sizes[1]);
    Tensor y = unsafe_view(r, mm(r, folded, small), shape);
    return swap ? contiguous(r, transpose(r, y, -2, -1)) : y;
  }
  // Batched: expand the batch dimensions, reshape (which copies what cannot be viewed) and bmm.
  const Tensor x = ra == 1 ? unsqueeze(r, a, 0) : a;
  const Tensor y = rb == 1 ? unsqueeze(r, b, 1) : b;
  auto batch_of = [](const Tensor& t) {
    Dims d;
    for (int i = 0; i + 2 < t->rank(); ++i) d.push_back(t->sizes[i]);
    return d;
  };
  const Dims batch = broadcast(batch_of(x), batch_of(y));
  const std::int64_t n = x->size(-2), m = x->size(-1), p = y->size(-1);
  check_product(m, y->size(-2));
  auto flat = [&](const Tensor& t, std::int64_t rows, std::int64_t cols) {
    Dims full = batch;
    full.push_back(rows);
    full.push_back(cols);
    return reshape(r, expand(r, t, full), {batch.product(), rows, cols});
  };
  Tensor fx = flat(x, n, m), fy = flat(y, m, p);
  Tensor product = bmm(r, fx, fy);
  Dims shape = batch;
  if (ra > 1) shape.push_back(n);
  if (rb > 1) shape.push_back(p);
  return unsafe_view(r, product, shape);
}

Tensor linear(Run& r, const Tensor& x, const Tensor& w, const Tensor& bias) {
  if (r.linear) return r.linear(r, x, w, bias);
  return plain_linear(r, x, w, bias);
}

Tensor plain_linear(Run& r, const Tensor& x, const Tensor& w, const Tensor& bias) {
  if (bias && x->rank() == 2) return addmm(r, bias, x, t(r, w));
  if (bias && x->rank() == 1) return squeeze(r, addmm(r, bias, unsqueeze(r, x, 0), t(r, w)), 0);
  if (bias && bias->rank() == 1 && x->rank() >= 3 && is_contiguous(*x)) {
    // _flatten_nd_linear
    Dims shape = x->sizes;
    std::int64_t rows = 1;
    for (int i = 0; i + 1 < x->rank(); ++i) rows = checked_mul(rows, x->sizes[i]);
    Tensor flat = reshape(r, x, {rows, x->sizes.back()});
    Tensor y = addmm(r, bias, flat, t(r, w));
    shape[shape.size() - 1] = w->sizes[0];
    return view(r, y, shape);
  }
  Tensor y = matmul(r, x, t(r, w));
  if (bias) add_(r, y, bias);
  return y;
}

}  // namespace op

namespace {

ValueList run_baddbmm(Run& r, Args& a) {
  Tensor self = a.tensor(0), x = a.tensor(1), y = a.tensor(2);
  Tensor out = r.dispatched("aten::baddbmm", [&] {
    Tensor out = r.empty({x->sizes[0], x->sizes[1], y->sizes[2]}, x->dtype);
    r.use_cublas();
    return TensorList{out};
  })[0];
  Node* node = r.record({self, x, y}, {out}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(3);
    if (n.wants(1)) out[1] = op::bmm(r, g[0], op::transpose(r, n.saved.back(), 1, 2));
    if (n.wants(2)) out[2] = op::bmm(r, op::transpose(r, n.saved.front(), 1, 2), g[0]);
    if (n.wants(0)) out[0] = g[0];
    return out;
  });
  if (node && node->wants(2)) r.save(node, x);
  if (node && node->wants(1)) r.save(node, y);
  return {out};
}

}  // namespace

void register_matmul(OpTable& t) {
  t.add("aten::mm", "self, mat2", [](Run& r, Args& a) -> ValueList { return {op::mm(r, a.tensor(0), a.tensor(1))}; });
  t.add("aten::bmm", "self, mat2", [](Run& r, Args& a) -> ValueList { return {op::bmm(r, a.tensor(0), a.tensor(1))}; });
  t.add("aten::addmm", "self, mat1, mat2, beta=1, alpha=1",
        [](Run& r, Args& a) -> ValueList { return {op::addmm(r, a.tensor(0), a.tensor(1), a.tensor(2))}; });
  t.add("aten::baddbmm", "self, batch1, batch2, beta=1, alpha=1", run_baddbmm);
  t.add("aten::matmul", "self, other",
        [](Run& r, Args& a) -> ValueList { return {op::matmul(r, a.tensor(0), a.tensor(1))}; });
  t.add("aten::linear", "input, weight, bias=None",
        [](Run& r, Args& a) -> ValueList { return {op::linear(r, a.tensor(0), a.tensor(1), a.optional_tensor(2))}; });
  t.add("aten::mv", "self, vec",
        [](Run& r, Args& a) -> ValueList { return {op::matmul(r, a.tensor(0), a.tensor(1))}; });
}

}  // namespace memplan
