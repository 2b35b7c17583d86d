// Losses (native/LossNLL.cpp, Loss.cpp of PyTorch 2.11) with autocast's treatment of their parts.
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

enum Reduction : std::int64_t { none = 0, mean = 1, sum = 2 };

/// nll_loss is on autocast's fp32 list although cross_entropy_loss is not: with half log-probabilities a fp32 copy is
/// made, and it is the copy that nll_loss keeps.
Tensor nll_loss(Run& r, Tensor x, const Tensor& target, const Tensor& weight, std::int64_t reduction) {
  if (r.autocast) x = cached_cast(r, x, DType::float32);
  const bool two_d = x->rank() > 2;
  const Dims sizes = reduction == none ? target->sizes : Dims{};
  // The 1-D kernel makes the loss first, the 2-D one the total weight.
  Tensor y, total;
  if (two_d) total = r.empty({}, x->dtype);
  y = r.empty(sizes, x->dtype);
  if (!two_d) total = r.empty({}, x->dtype);
  // Scores that are not contiguous are copied for the kernel: forward in both, backward in the 1-D one.
  const bool reads_again = !two_d && reduction != none;
  if (two_d || reads_again) op::read_as(r, x);
  Node* node = r.record({x}, {y}, [reads_again](Run& r, Node& n, TensorList&) {
    const Tensor& x = n.saved[0];
    Tensor dx = r.empty(x->sizes, x->dtype);
    if (reads_again) op::read_as(r, x);
    return TensorList{dx};
  });
  r.save(node, x);
  r.save(node, target);
  r.save(node, weight);
  r.save_output(node, total);
  return y;
}

using op::call;

Tensor reduce(Run& r, const Tensor& full, std::int64_t reduction) {
  if (reduction == none) return full;
  return reduction == mean ? op::mean(r, full, {}, false) : op::sum(r, full, {}, false);
}

/// cross_entropy_loss_prob_target without smoothing.
Tensor probability_loss(Run& r, const Tensor& log_p, const Tensor& target, const Tensor& weight, std::int64_t reduction,
                        int class_dim) {
  Tensor product = op::mul(r, log_p, target);
  Tensor weighted = weight ? op::mul(r, product, weight) : product;
  if (!weight) product.reset();
  Tensor total = op::sum(r, weighted, reduction == none ? Dims{class_dim} : Dims{}, false);
  Tensor negative = op::neg(r, total);
  if (reduction != mean) return negative;
  return op::div_number(r, negative);
}

/// cross_entropy_loss_label_smoothing: the loss plus the mean of the log-probabilities of targets not ignored.
Tensor smoothed_loss(Run& r, const Tensor& log_p, const Tensor& target, const Tensor& weight, std::int64_t reduction,
                     int class_dim) {
  // sum is on autocast's list of ops that give fp32.
  const auto wide = r.autocast && (log_p->dtype == DType::float16 || log_p->dtype == DType::bfloat16)
                        ? std::optional(DType::float32)
                        : std::nullopt;
  Tensor nll = nll_loss(r, log_p, target, weight, reduction);
  Tensor smooth;
  {
    Tensor weighted = weight ? op::mul(r, log_p, weight) : log_p;
    Tensor total = op::sum(r, weighted, {class_dim}, false, wide);
    smooth = op::neg(r, total);
    total.reset();
  }
  Tensor ignored = op::pointwise(r, {target}, DType::boolean);
  smooth = call(r, "aten::masked_fill_.Scalar", {smooth, ignored, 0.0});
  Tensor average;
  if (reduction == mean) {
    if (weight) {
      // weight.gather(0, target.masked_select(~ignored)).sum(): counted as if no target were ignored
      Tensor kept = op::pointwise(r, {ignored}, DType::boolean);
      Tensor selected = r.empty({target->numel()}, DType::int64);
      Tensor weights = r.empty({target->numel()}, weight->dtype);
      Tensor count = op::sum(r, weights, {}, false);
      Tensor total = op::sum(r, smooth, {}, false, wide);
      average = op::div(r, total, count);
    } else {
      Tensor kept = op::pointwise(r, {target}, DType::boolean);
      Tensor count = op::sum(r, kept, {}, false);
      Tensor total = op::sum(r, smooth, {}, false, wide);
      average = op::div(r, total, count);
      total.reset();
      count.reset();
    }
  } else {
    average = reduction == sum ? op::sum(r, smooth, {}, false, wide) : smooth;
  }
  Tensor right = op::mul_number(r, average), left = op::mul_number(r, nll);
  Tensor y = op::add(r, left, right);
  left.reset();
  right.reset();
  average.reset();
  ignored.reset();
  smooth.reset();
  nll.reset();
  return y;
}

ValueList run_cross_entropy(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1), weight = a.optional_tensor(2);
  const std::int64_t reduction = a.integer(3);
  const int class_dim = x->rank() == 1 ? 0 : 1;
  Tensor log_p = op::log_softmax(r, x, class_dim, {});
  if (is_floating(target->dtype)) return {probability_loss(r, log_p, target, weight, reduction, class_dim)};
  if (a.number(5) > 0) return {smoothed_loss(r, log_p, target, weight, reduction, class_dim)};
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
      if (n.wants(i)) out[i] = r.empty(op::broadcast(n.saved[0]->sizes, n.saved[1]->sizes), n.saved[0]->dtype);
    return out;
  });
  r.save(node, x);
  r.save(node, target);
  return {y};
}

/// The kernel fills a tensor of full size, whose reduction is a tensor of its own.
ValueList run_huber(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  const std::int64_t reduction = a.integer_or(2, mean);
  Tensor y = op::pointwise(r, {x, target}, op::result_type({x, target}));
  if (reduction != none) {
    Tensor scalar = r.empty({}, y->dtype);
    op::reduction_scratch(r, y, scalar, {}, 4);
    y = std::move(scalar);
  }
  row_named(r, "aten::huber_loss").derivatives.record(r, {{"self", x}, {"target", target}}, {y});
  return {y};
}

/// The reduction is copied back into the first element of the unreduced loss, whose memory stays.
ValueList run_in_own_storage(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  const std::int64_t reduction = a.integer_or(a.op() == "aten::soft_margin_loss" ? 2 : 3, mean);
  Tensor weight = a[2].is_tensor() ? a.tensor(2) : Tensor();
  Tensor y = op::pointwise(r, {x, target}, op::result_type({x, target}));
  if (reduction != none) {
    {
      Tensor scalar = r.empty({}, y->dtype);
      op::reduction_scratch(r, y, scalar, {}, 4);
    }
    y = r.alias(y, {}, {}, 0);
    y->is_view = false;
  }
  a.row().derivatives.record(r, {{"self", x}, {"target", target}, {"weight", weight}}, {y});
  return {y};
}

ValueList run_l1(Run& r, Args& a) {
  Tensor d = op::sub(r, a.tensor(0), a.tensor(1));
  Tensor m = call(r, "aten::abs", {d});
  return {reduce(r, m, a.integer_or(2, mean))};
}

ValueList run_bce_logits(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1), weight = a.optional_tensor(2), pos_weight = a.optional_tensor(3);
  const std::int64_t reduction = a.integer_or(4, mean);
  Tensor y;
  {
    Tensor log_sigmoid = op::pointwise(r, {x}, x->dtype);
    if (pos_weight) {
      Tensor less = op::pointwise(r, {pos_weight}, pos_weight->dtype);
      Tensor log_weight = op::pointwise(r, {less, target}, x->dtype);
      less.reset();
    }
    Tensor loss = op::pointwise(r, {x, target}, x->dtype);
    y = loss;
    if (reduction != none) {
      y = r.empty({}, x->dtype);
      op::reduction_scratch(r, loss, y, {}, 4);
    }
    loss.reset();
  }
  a.row().derivatives.record(r, {{"self", x}, {"target", target}, {"weight", weight}, {"pos_weight", pos_weight}}, {y});
  return {y};
}

ValueList run_kl_div(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  const bool log_target = !a.none(3) && a.boolean(3);
  Tensor full;
  if (log_target) {
    // exp(target) * (target - input)
    Tensor difference = op::sub(r, target, x);
    Tensor p = call(r, "aten::exp", {target});
    full = op::mul(r, p, difference);
  } else {
    Tensor right = op::mul(r, target, x);
    Tensor left = call(r, "aten::xlogy.Tensor", {target, target});
    full = op::sub(r, left, right);
    left.reset();
    right.reset();
  }
  return {reduce(r, full, a.integer_or(2, mean))};
}

ValueList run_poisson(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1), full;
  if (a.boolean(2)) {
    Tensor right = op::mul(r, target, x);
    full = op::sub(r, call(r, "aten::exp", {x}), right);
  } else {
    Tensor shifted = op::add_number(r, x);
    Tensor right = op::mul(r, target, call(r, "aten::log", {shifted}));
    full = op::sub(r, x, right);
  }
  return {reduce(r, full, a.integer_or(5, mean))};
}

/// where(target == label, x, zeros) of the losses for pairs labelled 1 and -1.
Tensor chosen(Run& r, const Tensor& target, const Tensor& x, const Tensor& zeros) {
  Tensor mask = op::pointwise(r, {target}, DType::boolean);
  return call(r, "aten::where.self", {mask, x, zeros});
}

ValueList run_hinge(Run& r, Args& a) {
  Tensor x = a.tensor(0), target = a.tensor(1);
  Tensor zeros = r.empty_like(x);
  Tensor margin = op::sub(r, op::number(r, true), x);
  margin = call(r, "aten::clamp_min_", {margin, 0.0});
  Tensor far = chosen(r, target, margin, zeros), near = chosen(r, target, x, zeros);
  Tensor full = op::add(r, far, near);
  return {reduce(r, full, a.integer_or(3, mean))};
}

ValueList run_cosine_embedding(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = a.tensor(1), target = a.tensor(2);
  const Dims last{x->rank() - 1};
  auto dot = [&](const Tensor& u, const Tensor& v) { return op::sum(r, op::mul(r, u, v), last, false); };
  Tensor product = dot(x, y);
  auto magnitude = [&](const Tensor& u) {
    Tensor square = op::mul(r, u, u);
    Tensor total = op::sum(r, square, last, false);
    Tensor sum = op::add_number(r, total);
    total.reset();
    return sum;
  };
  Tensor mx = magnitude(x), my = magnitude(y);
  Tensor denominator = call(r, "aten::sqrt_", {op::mul(r, mx, my)});
  Tensor cosine = op::div(r, product, denominator);
  Tensor zeros = r.empty_like(cosine), pos = op::sub(r, op::number(r, true), cosine);
  Tensor neg = op::sub(r, cosine, op::number(r, true));
  neg = call(r, "aten::clamp_min_", {neg, 0.0});
  Tensor near = chosen(r, target, pos, zeros), far = chosen(r, target, neg, zeros);
  Tensor full = op::add(r, near, far);
  Tensor loss = reduce(r, full, a.integer_or(4, mean));
  full.reset();
  far.reset();
  near.reset();
  return {loss};
}

ValueList run_margin_ranking(Run& r, Args& a) {
  Tensor output;
  {
    Tensor difference = op::sub(r, a.tensor(0), a.tensor(1));
    Tensor minus = op::neg(r, a.tensor(2));
    Tensor product = op::mul(r, minus, difference);
    output = op::add_number(r, product);
    product.reset();
    minus.reset();
  }
  output = call(r, "aten::clamp_min_", {output, 0.0});
  return {reduce(r, output, a.integer_or(4, mean))};
}

ValueList run_pairwise_distance(Run& r, Args& a) {
  Tensor difference = op::sub(r, a.tensor(0), a.tensor(1));
  Tensor shifted = op::add_number(r, difference);
  const int last = shifted->rank() - 1;
  return {call(r, "aten::norm.ScalarOpt_dim", {shifted, a[2], Value(ValueList{Value(last)}), a[4]})};
}

ValueList run_triplet(Run& r, Args& a) {
  auto distance = [&](const Tensor& u, const Tensor& v) {
    return call(r, "aten::pairwise_distance", {u, v, a[4], a[5], false});
  };
  Tensor anchor = a.tensor(0), positive = a.tensor(1), negative = a.tensor(2);
  Tensor near = distance(anchor, positive), far = distance(anchor, negative);
  if (a.boolean(6)) {
    Tensor swapped = distance(positive, negative);
    far = call(r, "aten::minimum", {far, swapped});
  }
  Tensor output;
  {
    Tensor sum = op::add_number(r, near);
    Tensor difference = op::sub(r, sum, far);
    output = call(r, "aten::clamp_min", {difference, 0.0});
    difference.reset();
    sum.reset();
  }
  return {reduce(r, output, a.integer_or(7, mean))};
}

/// The norms are cloned, so that they can be clamped without autograd seeing it.
ValueList run_cosine_similarity(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = a.tensor(1);
  const ValueList dim{a[2]};
  auto norm = [&](const Tensor& t) {
    return op::clone(r, call(r, "aten::linalg_vector_norm", {t, 2.0, Value(dim), true, Value()}));
  };
  Tensor nx = norm(x), ny = norm(y);
  Tensor eps = r.empty({}, DType::float32);
  Tensor right = op::div(r, y, ny), left = op::div(r, x, nx);
  Tensor product = op::mul(r, left, right);
  Tensor total = op::sum(r, product, to_dims(Value(dim), "aten::cosine_similarity"), false);
  product.reset();
  left.reset();
  right.reset();
  return {total};
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

void register_losses(OpTable& t) {
  t.add("aten::cross_entropy_loss", "self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0",
        run_cross_entropy);
  for (const char* n : {"aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss2d"})
    t.add(n, "self, target, weight=None, reduction=1, ignore_index=-100", run_nll);
  for (const char* n : {"aten::mse_loss", "aten::smooth_l1_loss"})
    t.add(n, "self, target, reduction=1, delta=None", run_pair_loss);
  t.add("aten::huber_loss", "self, target, reduction=1, delta=1.0", run_huber).derivatives =
      Derivatives("self: huber_loss_backward(grad, self, target) | target: huber_loss_backward(grad, target, self)");
  t.add("aten::l1_loss", "self, target, reduction=1", run_l1);
  t.add("aten::binary_cross_entropy_with_logits", "self, target, weight=None, pos_weight=None, reduction=1",
        run_bce_logits)
      .derivatives = Derivatives(
      "self: t = defined(pos_weight) ? pos_weight * target : none; g = defined(pos_weight) ? (t + "
      "1).mul_(self.sigmoid()) : kernel(self, target, weight); g | "
      "target: kernel(self.sigmoid(), target)");
  t.add("aten::binary_cross_entropy", "self, target, weight=None, reduction=1", run_in_own_storage).derivatives =
      Derivatives("self: binary_cross_entropy_backward(self, target, weight)");
  t.add("aten::soft_margin_loss", "self, target, reduction=1", run_in_own_storage).derivatives =
      Derivatives("self: z = exp(-target * self); kernel(self, target, z)");
  t.add("aten::kl_div", "self, target, reduction=1, log_target=False", run_kl_div);
  t.add("aten::poisson_nll_loss", "input, target, log_input, full, eps, reduction", run_poisson);
  t.add("aten::hinge_embedding_loss", "self, target, margin=1.0, reduction=1", run_hinge);
  t.add("aten::cosine_embedding_loss", "input1, input2, target, margin=0.0, reduction=1", run_cosine_embedding);
  t.add("aten::margin_ranking_loss", "input1, input2, target, margin=0.0, reduction=1", run_margin_ranking);
  t.add("aten::triplet_margin_loss", "anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, reduction=1",
        run_triplet);
  t.add("aten::pairwise_distance", "x1, x2, p=2, eps=1e-6, keepdim=False", run_pairwise_distance);
  t.add("aten::cosine_similarity", "x1, x2, dim=1, eps=1e-8", run_cosine_similarity);
  t.add("aten::glu", "self, dim=-1", run_glu);
  for (const char* n : {"aten::prelu", "aten::_prelu_kernel"}) t.add(n, "self, weight", run_prelu, Fidelity::modelled);
}

}  // namespace memplan
