// Losses (native/LossNLL.cpp, Loss.cpp of PyTorch 2.11) with autocast's treatment of their parts.
#include "estimators/aten/autocast.h"
#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {

namespace {

enum Reduction : std::int64_t { none = 0, mean = 1, sum = 2 };

/// nll_loss is on autocast's fp32 list although cross_entropy_loss is not: with half log-probabilities a fp32 copy is
/// made, and it is the copy that nll_loss keeps.
Tensor nll_loss(Run& r, Tensor x, const Tensor& target, const Tensor& weight, std::int64_t reduction) {
  if (r.autocast) x = cached_cast(r, x, DType::float32);
  const bool two_d = x->rank() == 4;
  const Dims sizes = reduction == none ? target->sizes : Dims{};
  // The 1-D kernel makes the loss first, the 2-D one the total weight.
  Tensor y, total;
  if (two_d) total = r.empty({}, x->dtype);
  y = r.empty(sizes, x->dtype);
  if (!two_d) total = r.empty({}, x->dtype);
  Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList&) {
    const Tensor& x = n.saved[0];
    return TensorList{r.empty(x->sizes, x->dtype)};
  });
  r.save(node, x);
  r.save(node, target);
  r.save(node, weight);
  r.save_output(node, total);
  return y;
}

ValueList run_cross_entropy(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1), weight = a.optional_tensor(2);
  const std::int64_t reduction = a.integer(3);
  const int class_dim = x->rank() == 1 ? 0 : 1;
  Tensor log_p = op::log_softmax(r, x, class_dim, {});
  if (a.number(5) > 0 || is_floating(target->dtype)) {
    // Label smoothing: the loss plus the mean of the log-probabilities.
    Tensor nll = nll_loss(r, log_p, is_floating(target->dtype) ? op::sum(r, target, {class_dim}, false) : target, weight, reduction);
    Tensor smooth = op::neg(r, op::sum(r, log_p, {class_dim}, false));
    Tensor mean = op::mean(r, smooth, {}, false);
    Tensor u = op::mul_number(r, nll), v = op::mul_number(r, mean);
    return {op::add(r, u, v)};
  }
  return {nll_loss(r, log_p, target, weight, reduction)};
}

/// mse_loss and its kind: the unreduced loss is the output's storage, which the reduction then shrinks in name only;
/// the mean needs a second tensor of full size and the scratch of a full reduction.
ValueList run_pair_loss(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  const std::int64_t reduction = a.integer_or(2, mean);
  Tensor full = op::pointwise(r, {x, target}, op::result_type({x, target}));
  Tensor y = full;
  if (reduction != none) {
    Tensor copy = r.empty_like(full);
    Tensor scalar = r.alias(full, {}, {}, 0);
    op::reduction_scratch(r, copy, scalar, {}, 4);
    y = scalar;
    y->is_view = false;
  }
  full.reset();
  Node* node = r.record({x, target}, {y}, [](Run& r, Node& n, TensorList&) {
    TensorList out(2);
    for (int i = 0; i < 2; ++i)
      if (n.wants(i)) out[i] = op::pointwise(r, {n.saved[0], n.saved[1]}, n.saved[0]->dtype);
    return out;
  });
  r.save(node, x);
  r.save(node, target);
  return {y};
}

ValueList run_l1(Run& r, Args& a) {
  Tensor d = op::sub(r, a.tensor(0), a.tensor(1));
  Tensor m = call_op(r, *registry().find("aten::abs"), {d}, {})[0].tensor();
  return {op::mean(r, m, {}, false)};
}

ValueList run_bce_logits(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  Tensor y;
  {
    Tensor first = op::pointwise(r, {x, target}, x->dtype), second = op::pointwise(r, {x, target}, x->dtype);
    y = r.empty({}, x->dtype);
    op::reduction_scratch(r, second, y, {}, 4);
    second.reset();
  }
  Node* node = r.record({x, target}, {y}, [](Run& r, Node& n, TensorList&) {
    TensorList out(2);
    if (n.wants(0)) out[0] = r.empty_like(n.saved[0]);
    return out;
  });
  r.save(node, x);
  r.save(node, target);
  return {y};
}

ValueList run_nll(Run& r, Args& a) {
  return {nll_loss(r, a.tensor(0), a.tensor(1), a.optional_tensor(2), a.integer_or(3, mean))};
}

/// glu: half of the input's channels; keeps the input.
ValueList run_glu(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int d = op::wrap_dim(a.integer(1), x->rank());
  Dims sizes = x->sizes;
  sizes[d] /= 2;
  Tensor y = r.empty(sizes, x->dtype);
  Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList&) { return TensorList{r.empty_like(n.saved[0])}; });
  r.save(node, x);
  return {y};
}

ValueList run_prelu(Run& r, Args& a) {
  Tensor x = a.tensor(0), w = a.tensor(1);
  Tensor y = r.empty_like(x);
  Node* node = r.record({x, w}, {y}, [](Run& r, Node& n, TensorList& g) {
    Tensor dx = r.empty_like(n.saved[0]), dw = r.empty_like(n.saved[0]);
    Dims dims;
    for (int i = 0; i < dx->rank(); ++i)
      if (i != 1 || n.inputs[1].sizes.product() == 1) dims.push_back(i);
    Tensor sum = op::sum(r, dw, dims, false);
    (void)g;
    return TensorList{dx, op::view(r, sum, n.inputs[1].sizes)};
  });
  r.save(node, x);
  r.save(node, w);
  return {y};
}

}  // namespace

void register_losses(Registry& t) {
  t.add("aten::cross_entropy_loss", "self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0", run_cross_entropy);
  for (const char* n : {"aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss2d"}) t.add(n, "self, target, weight=None, reduction=1, ignore_index=-100", run_nll);
  for (const char* n : {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss"}) t.add(n, "self, target, reduction=1, delta=None", run_pair_loss);
  t.add("aten::l1_loss", "self, target, reduction=1", run_l1, Fidelity::modelled);
  t.add("aten::binary_cross_entropy_with_logits", "self, target, weight=None, pos_weight=None, reduction=1", run_bce_logits, Fidelity::modelled);
  t.add("aten::binary_cross_entropy", "self, target, weight=None, reduction=1", run_pair_loss, Fidelity::modelled);
  t.add("aten::glu", "self, dim=-1", run_glu);
  for (const char* n : {"aten::prelu", "aten::_prelu_kernel"}) t.add(n, "self, weight", run_prelu, Fidelity::modelled);
}

}  // namespace memplan
