// The autograd function that DeepSpeed puts in the place of torch.nn.functional.linear under ZeRO-3.
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"

namespace memplan {

/// LinearFunctionForZeroStage3 (deepspeed/runtime/zero/linear.py): an autograd function of its own instead of
/// torch.nn.functional.linear, so that no view of a gathered weight outlives it.
Tensor linear_of_zero3(Run& r, const Tensor& x, const Tensor& w, const Tensor& bias) {
  using namespace op;
  if (x->rank() < 2) return plain_linear(r, x, w, bias);
  Tensor y;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    if (bias && x->rank() == 2) {
      y = addmm(r, bias, x, t(r, w));
    } else {
      y = matmul(r, x, t(r, w));
      if (bias) add_(r, y, bias);
    }
  }
  Node* node = r.record(TensorList{x, w, bias}, TensorList{y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(3);
    const Tensor input = n.saved[0], weight = n.saved[1], &grad = g[0];
    const auto rows = [&](const Tensor& v) {
      return v->rank() > 2 ? reshape(r, v, {v->numel() / v->sizes.back(), v->sizes.back()}) : v;
    };
    if (n.wants(0)) out[0] = matmul(r, grad, weight);
    if (n.wants(1)) out[1] = matmul(r, t(r, rows(grad)), rows(input));
    if (n.wants(2)) {
      Dims dims;
      for (int i = 0; i + 1 < grad->rank(); ++i) dims.push_back(i);
      out[2] = sum(r, grad, dims, false);
    }
    return out;
  });
  if (!node) return y;
  r.save(node, x);
  r.save(node, w);
  return y;
}

}  // namespace memplan
