#include "estimators/runtime/torch/step/clip.h"

#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

void clip_grad_norm(Run& r, const TensorList& parameters) {
  r.phase = Phase::clip;
  r.scope = r.call = -1;
  ScopedValue<bool> no_grad(r.grad_mode, false);
  r.begin_op("clip_grad_norm_");
  TensorList grads;
  for (const Tensor& p : parameters)
    if (p->grad) grads.push_back(p->grad);
  if (grads.empty()) return;
  // _foreach_norm (aten/src/ATen/native/cuda/ForeachReduceOp.cu): one partial result per chunk of 65536 elements of
  // the largest tensor, for every tensor, then one scalar per tensor.
  std::int64_t chunks = 0;
  for (const Tensor& g : grads) chunks = std::max(chunks, (g->numel() + 65535) / 65536);
  const DType dtype = grads[0]->dtype;
  const auto n = static_cast<std::int64_t>(grads.size());
  TensorList norms;
  {
    Tensor partial = r.empty({checked_mul(n, chunks)}, DType::float32);
    for (std::int64_t i = 0; i < n; ++i) norms.push_back(r.empty({}, dtype));
  }
  Tensor total;
  {
    Tensor stacked = r.empty({n}, dtype);
    total = r.empty({}, dtype);
    op::reduction_scratch(r, stacked, total, {}, 4);
  }
  norms.clear();
  Tensor sum = r.empty({}, dtype);         // total_norm + 1e-6
  Tensor reciprocal = r.empty({}, dtype);  // max_norm / …: reciprocal, then the product
  Tensor coefficient = r.empty({}, dtype);
  reciprocal.reset();
  sum.reset();
  Tensor clamped = r.empty({}, dtype);
}

}  // namespace memplan
