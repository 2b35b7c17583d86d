// Systems of equations with a triangular matrix (native/BatchLinearAlgebra.cpp of PyTorch 2.11).
#include "estimators/runtime/torch/aten/rows/matrices.h"

namespace memplan {

namespace {

/// linalg_solve_triangular_out: the result is a copy of B whose matrices lie column by column; cuBLAS overwrites it. A
/// is copied unless its matrices lie row by row or column by column. triangular_solve_kernel
/// (cuda/linalg/BatchLinearAlgebra.cpp): few large matrices one after the other, else a list of pointers to each of A
/// and B.
Tensor solve(Run& r, const Tensor& a, const Tensor& b) {
  const int rank = b->rank();
  const Dims of_a = linear::batch_of(a), of_b = linear::batch_of(b), batch = op::broadcast(of_b, of_a);
  Dims turned = batch;
  turned.push_back(b->size(-1));
  turned.push_back(b->size(-2));
  Tensor y;
  Tensor copy;
  std::int64_t count = 1;
  for (auto n : batch) count = checked_mul(count, n);
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    y = op::transpose(r, r.empty(turned, b->dtype), rank - 2, rank - 1);
    if (of_a != of_b || (!is_contiguous(*a) && !is_contiguous(*op::transpose(r, a, a->rank() - 2, a->rank() - 1))))
      copy = r.scratch(bytes_of(a->dtype, checked_mul(checked_mul(count, a->size(-1)), a->size(-1))));
  }
  r.use_cublas();
  if (count > 8 || a->size(-1) < 64) {
    Tensor pointers_a = r.scratch(Bytes(count * 8)), pointers_b = r.scratch(Bytes(count * 8));
    pointers_b.reset();
  }
  return y;
}

/// linalg_solve_triangular_backward (autograd/FunctionsManual.cpp).
ValueList run_solve(Run& r, Args& args) {
  const Tensor a = args.tensor(0), b = args.tensor(1);
  const bool left = args.boolean(3);
  Tensor y = solve(r, a, b);
  Node* node = r.record({a, b}, {y}, [left](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    const Tensor &a = n.saved[0], &x = n.saved[1];
    const auto turned = [&](const Tensor& t) { return op::transpose(r, t, t->rank() - 2, t->rank() - 1); };
    Tensor of_b = solve(r, turned(a), g[0]);
    if (n.wants(0)) {
      Tensor product = left ? op::matmul(r, of_b, turned(x)) : op::matmul(r, turned(x), of_b);
      product = op::neg(r, product);
      out[0] = r.empty(product->sizes, product->dtype);  // triu or tril
    }
    if (n.wants(1)) out[1] = of_b;
    return out;
  });
  r.save(node, a);
  r.save(node, y);
  return {y};
}

}  // namespace

void register_triangular(OpTable& t) {
  t.add("aten::linalg_solve_triangular", "self, B, upper, left=True, unitriangular=False", run_solve);
}

}  // namespace memplan
