#include "estimators/runtime/torch/aten/collectives.h"

#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

/// A result of the shape of `x`, contiguous, as collectives want it.
Tensor result_like(Run& r, const Tensor& x) { return r.empty(x->sizes, x->dtype); }

/// all_gather_tensor: along dimension 0; for another one the chunks are put together once more (torch.cat).
Tensor gather(Run& r, const Tensor& given, int dim, std::int64_t ranks) {
  const Tensor x = op::contiguous(r, given);
  Dims flat = x->sizes;
  flat[0] = checked_mul(flat[0], ranks);
  Tensor result = r.empty(flat, x->dtype);
  if (dim == 0) return result;
  Dims sizes = x->sizes;
  sizes[dim] = checked_mul(sizes[dim], ranks);
  return r.empty(sizes, x->dtype);
}

/// reduce_scatter_tensor: along dimension 0; for another one the chunks are first laid one behind the other.
Tensor scatter(Run& r, const Tensor& x, int dim, std::int64_t ranks) {
  const Tensor input = dim == 0 ? op::contiguous(r, x) : r.empty(x->sizes, x->dtype);
  Dims sizes = x->sizes;
  sizes[dim] = (sizes[dim] + ranks - 1) / ranks;
  return r.empty(sizes, x->dtype);
}

int dim_of(const Tensor& x, std::int64_t dim) { return static_cast<int>(dim < 0 ? dim + x->rank() : dim); }

ValueList run_column_linear(Run& r, Args& a) {
  const Tensor x = op::contiguous(r, a.tensor(0)), weight = a.tensor(1), bias = a.optional_tensor(2);
  Dims whole = x->sizes;
  const int dim = dim_of(x, a.integer(3));
  whole[dim] = checked_mul(whole[dim], a.integer(4));
  const bool transposed = a.boolean(5);
  Tensor y;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    // Megatron-LM's activations begin with the sequence: one buffer, without putting the parts together.
    const Tensor total = r.empty(whole, x->dtype);
    y = op::linear(r, total, transposed ? op::t(r, weight) : weight, bias);
  }
  Node* node = r.record({x, weight, bias}, {y}, [whole](Run& r, Node& n, TensorList& g) {
    TensorList out(3);
    const Tensor grad = op::contiguous(r, g[0]);
    Tensor total, grad_input;
    if (n.wants(1)) total = r.empty(whole, n.inputs[0].dtype);
    if (n.wants(0)) {
      grad_input = r.empty(whole, n.inputs[0].dtype);
      r.use_cublas();
      out[0] = r.empty(n.inputs[0].sizes, n.inputs[0].dtype);
    }
    if (n.wants(1)) {
      r.use_cublas();
      out[1] = r.empty(n.inputs[1].sizes, n.inputs[1].dtype);
    }
    if (n.wants(2)) out[2] = r.empty(n.inputs[2].sizes, n.inputs[2].dtype);
    return out;
  });
  if (node && node->wants(1)) r.save(node, x);
  if (node && node->wants(0)) r.save(node, weight);
  return {y};
}

/// Everything but the logits' copy has one number per token.
Tensor vocab_cross_entropy(Run& r, const Tensor& logits, const Tensor& target) {
  const Dims tokens = target->sizes;
  const Dims flat{target->numel()};
  Tensor softmax, mask, masked, loss;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    softmax = op::to(r, logits, DType::float32);  // then subtracted from, raised and divided in place
    Tensor most = r.empty(tokens, DType::float32);
    Tensor below = r.empty(tokens, DType::boolean), above = r.empty(tokens, DType::boolean);
    mask = r.empty(tokens, DType::boolean);
    below.reset(), above.reset();
    Tensor copy = r.empty(tokens, target->dtype);
    masked = r.empty(tokens, target->dtype);
    copy.reset();
    Tensor positions = r.empty(flat, DType::int64), predicted = r.empty(flat, DType::float32);
    predicted = r.empty(flat, DType::float32);  // .clone()
    Tensor sums = r.empty(tokens, DType::float32), logarithms = r.empty(tokens, DType::float32);
    loss = r.empty(tokens, DType::float32);
  }
  Node* node = r.record({logits}, {loss}, [flat](Run& r, Node& n, TensorList&) {
    Tensor positions = r.empty(flat, DType::int64), wide = r.empty(flat, DType::float32),
           update = r.empty(flat, DType::float32);
    wide.reset();
    Tensor taken = r.empty(flat, DType::float32);
    return TensorList{n.saved[0]};  // the softmax becomes the gradient in place
  });
  if (node) {
    r.save(node, softmax);
    r.save(node, mask);
    r.save(node, masked);
  }
  return loss;
}

}  // namespace

void register_collectives(OpTable& t) {
  t.add("memplan::all_reduce_backward", "self, in_place=False", [](Run& r, Args& a) -> ValueList {
    const Tensor x = a.tensor(0);
    Tensor y = r.detach(x);
    y->is_view = x->is_view;
    const bool in_place = a.boolean(1);
    r.record({x}, {y}, [in_place](Run& r, Node&, TensorList& g) {
      return TensorList{in_place ? op::contiguous(r, g[0]) : result_like(r, g[0])};
    });
    return {y};
  });
  t.add("memplan::all_reduce", "self, in_place=False", [](Run& r, Args& a) -> ValueList {
    const Tensor x = a.tensor(0);
    Tensor y;
    if (a.boolean(1)) {
      y = r.detach(x);
      y->is_view = x->is_view;
    } else {
      y = result_like(r, x);
    }
    r.record({x}, {y}, [](Run&, Node&, TensorList& g) { return g; });
    return {y};
  });
  t.add("memplan::all_gather", "self, dim, ranks, reduce=True", [](Run& r, Args& a) -> ValueList {
    const Tensor x = a.tensor(0);
    const int dim = dim_of(x, a.integer(1));
    const std::int64_t ranks = a.integer(2);
    const bool reduce = a.boolean(3);
    Tensor y;
    {
      ScopedValue<bool> no_grad(r.grad_mode, false);
      y = gather(r, x, dim, ranks);
    }
    r.record({x}, {y}, [dim, ranks, reduce](Run& r, Node& n, TensorList& g) {
      if (reduce) return TensorList{scatter(r, g[0], dim, ranks)};
      return TensorList{op::contiguous(r, op::slice(r, g[0], dim, 0, n.inputs[0].sizes[dim]))};
    });
    return {y};
  });
  t.add("memplan::reduce_scatter", "self, dim, ranks", [](Run& r, Args& a) -> ValueList {
    const Tensor x = a.tensor(0);
    const int dim = dim_of(x, a.integer(1));
    const std::int64_t ranks = a.integer(2);
    Tensor y;
    {
      ScopedValue<bool> no_grad(r.grad_mode, false);
      y = scatter(r, x, dim, ranks);
    }
    r.record({x}, {y}, [dim, ranks](Run& r, Node&, TensorList& g) { return TensorList{gather(r, g[0], dim, ranks)}; });
    return {y};
  });
  t.add("memplan::vocab_embedding", "weight, indices, rows", [](Run& r, Args& a) -> ValueList {
    const Tensor weight = a.tensor(0), ids = a.tensor(1);
    Dims sizes = ids->sizes;
    sizes.push_back(weight->sizes[1]);
    Tensor y;
    {
      // _MaskPartial._mask_tensor (torch/distributed/tensor/_ops/_embedding_ops.py).
      ScopedValue<bool> no_grad(r.grad_mode, false);
      Tensor below = r.empty(ids->sizes, DType::boolean), above = r.empty(ids->sizes, DType::boolean),
             mask = r.empty(ids->sizes, DType::boolean);
      below.reset();
      above.reset();
      Tensor copy = op::clone(r, ids), local = r.empty_like(ids);
      copy.reset();
      y = r.empty(sizes, weight->dtype);
    }
    const std::int64_t rows = a.integer(2);
    r.save(r.record({weight}, {y},
                    [rows](Run& r, Node& n, TensorList& g) {
                      // DTensor's embedding_dense_backward has the whole vocabulary as num_weights: the gradient is
                      // whole on every rank.
                      Dims whole = n.inputs[0].sizes;
                      whole[0] = rows;
                      Tensor grad = r.empty(whole, g[0]->dtype);
                      grad->sizes = n.inputs[0].sizes;
                      return TensorList{grad};
                    }),
           ids);
    return {y};
  });
  t.add("memplan::column_linear", "self, weight, bias, dim, ranks, transposed", run_column_linear);
  t.add("memplan::vocab_cross_entropy", "logits, target",
        [](Run& r, Args& a) -> ValueList { return {vocab_cross_entropy(r, a.tensor(0), a.tensor(1))}; });
  t.add("memplan::exchange", "self", [](Run& r, Args& a) -> ValueList {
    const Tensor x = a.tensor(0);
    Tensor y = result_like(r, x);
    r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{result_like(r, g[0])}; });
    return {y};
  });
}

}  // namespace memplan
