// torch.distributed.tensor.parallel.loss_parallel(): cross entropy of logits that stay cut by the vocabulary
// (torch/distributed/tensor/parallel/loss.py of PyTorch 2.11, whose functions the ones below are named after).
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/aten/collectives.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

constexpr std::int64_t mean_of_tokens = 1;  // at::Reduction::Mean

/// funcol.all_reduce: the sum or the maximum in a copy; `local` goes once the caller's name for it is taken.
Tensor all_reduced(Run& r, const Tensor& local) { return r.empty(local->sizes, local->dtype); }

/// torch.where(target != ignore_index, value, 0)
Tensor unless_ignored(Run& r, const Dims& sizes, DType dtype) {
  const Tensor kept = r.empty(sizes, DType::boolean), zero = r.empty({}, dtype);
  return r.empty(sizes, dtype);
}

/// _MaskPartial._partition_value (torch/distributed/tensor/_ops/_embedding_ops.py): positions within the rank's part,
/// and the mask of those that are not its own.
struct Partition {
  Tensor mask, positions;
};
Partition partition(Run& r, const Dims& sizes, DType dtype) {
  Partition p;
  {
    Tensor below = r.empty(sizes, DType::boolean), above = r.empty(sizes, DType::boolean);
    p.mask = r.empty(sizes, DType::boolean);
    below.reset();
  }
  const Tensor copy = r.empty(sizes, dtype);
  p.positions = r.empty(sizes, dtype);
  return p;
}

/// _log_softmax_handler. It computes in fp32, and the copy of 16-bit logits stays until it returns.
Tensor log_softmax_of_part(Run& r, const Tensor& logits) {
  Tensor result;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor x = op::to(r, logits, DType::float32), most, shifted, sums, logarithms;
    {
      const Tensor local = call_op(r, "aten::amax", {x, ValueList{1}, true})[0].tensor();
      most = all_reduced(r, local);
    }
    shifted = op::sub(r, x, most);
    {
      Tensor raised = op::pointwise(r, {shifted}, DType::float32);
      const Tensor local = op::sum(r, raised, {1}, true);
      raised.reset();
      sums = all_reduced(r, local);
    }
    logarithms = op::pointwise(r, {sums}, DType::float32);
    result = op::sub(r, shifted, logarithms);
    result = op::to(r, result, logits->dtype);
    x.reset(), shifted.reset(), most.reset(), sums.reset();
  }
  // _log_softmax_backward_handler computes nothing: the loss's gradient is already that of the logits.
  r.save_output(r.record({logits}, {result}, [](Run&, Node&, TensorList& g) { return TensorList{g[0]}; }), result);
  return result;
}

/// _nll_loss_and_log_softmax_backward
Tensor gradient_of_part(Run& r, Node& n, const Tensor& grad, std::int64_t reduction) {
  const Tensor x = n.saved[0], target = n.saved[1];
  const Dims tokens{target->numel()}, column{target->numel(), 1};
  Tensor of_loss = reduction == mean_of_tokens ? r.empty({}, grad->dtype) : grad;
  Tensor safe = unless_ignored(r, column, target->dtype);
  Tensor result = r.empty_like(x);
  Partition part = partition(r, tokens, target->dtype);
  Tensor update;
  {
    const Tensor wide = r.empty(tokens, x->dtype);
    update = r.empty(tokens, x->dtype);
  }
  Tensor rows = r.empty(tokens, DType::int64);
  Tensor of_tokens = unless_ignored(r, column, of_loss->dtype);
  of_loss.reset();
  Tensor total;
  {
    const Tensor raised = r.empty_like(x);
    total = r.empty_like(x);
  }
  Tensor product = r.empty_like(x);
  total.reset(), of_tokens.reset(), safe.reset(), result.reset();
  part.mask.reset(), part.positions.reset(), update.reset(), rows.reset();
  return product;
}

/// _nll_loss_forward_handler. Everything here has one number per token, or one.
Tensor nll_of_part(Run& r, Tensor x, const Tensor& target, std::int64_t reduction) {
  if (r.autocast) x = cached_cast(r, x, DType::float32);
  const Dims tokens{target->numel()}, column{target->numel(), 1};
  Tensor loss, count;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor safe = unless_ignored(r, tokens, target->dtype);
    Partition part = partition(r, column, target->dtype);
    Tensor taken = r.empty(column, x->dtype);
    part.mask.reset();
    Tensor reduced = all_reduced(r, taken);
    Tensor negative = r.empty(tokens, x->dtype);
    Tensor kept = unless_ignored(r, tokens, x->dtype);
    negative.reset();
    {
      Tensor counted = r.empty(tokens, DType::boolean);
      const Tensor number = op::sum(r, counted, {}, false);
      counted.reset();
      count = op::to(r, number, x->dtype);
    }
    loss = op::sum(r, kept, {}, false);
    if (reduction == mean_of_tokens) loss = op::div(r, loss, count);
    kept.reset(), safe.reset(), part.positions.reset(), taken.reset();
  }
  Node* node = r.record({x}, {loss}, [reduction](Run& r, Node& n, TensorList& g) {
    return TensorList{gradient_of_part(r, n, g[0], reduction)};
  });
  r.save(node, x);
  r.save(node, target);
  r.save_output(node, count);
  return loss;
}

}  // namespace

void register_loss_parallel(OpTable& t) {
  t.add("memplan::loss_parallel", "logits, target, reduction", [](Run& r, Args& a) -> ValueList {
    const Tensor log_p = log_softmax_of_part(r, a.tensor(0));
    return {nll_of_part(r, log_p, a.tensor(1), a.integer(2))};
  });
}

}  // namespace memplan
