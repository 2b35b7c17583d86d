// Scaled dot product attention: the kernel that PyTorch chooses, with what its backward pass reads, or its parts.
#include "estimators/runtime/torch/aten/attention.h"

#include <cmath>

#include "estimators/runtime/torch/compiled/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/setup.h"

namespace memplan::compiled {

namespace {

struct Attended {
  Var q, k, v, mask;
  double p = 0, scale = 0;
  bool causal = false, grouped = false;
  std::int64_t forward_scratch = 0, backward_scratch = 0;
};

std::string settings_of(const Attended& a) {
  return prim::text(prim::Number{a.p}) + prim::text(prim::Number{a.scale}) + (a.causal ? "causal" : "");
}

Var float_mask(Tracer& t, const Var& mask, DType dtype) {
  if (!mask || mask.t->dtype != DType::boolean) return mask;
  return prim::where(t, mask, prim::scalar(t, "0.0", dtype), prim::scalar(t, "-inf", dtype));
}

/// One node for the pass and one for its gradients, which reads all that came in and out.
Var fused(Tracer& t, const Attended& a, std::string_view name, const TensorList& results) {
  Vars inputs{a.q, a.k, a.v};
  if (a.mask) inputs.push_back(a.mask);
  const Vars pieces = t.emit_several(name, inputs, settings_of(a), results);
  t.takes(pieces, a.forward_scratch);
  const std::string backward = std::string(name) + "_backward";
  return t.record({a.q, a.k, a.v, a.mask}, pieces[0], [=](Tracer& t, const Vars& g) {
    Vars reads{g[0], a.q, a.k, a.v};
    if (a.mask) reads.push_back(a.mask);
    for (const Var& p : pieces)
      if (p) reads.push_back(p);
    const Tensor bias = a.mask && a.mask.wants() ? t.run.empty(a.mask.t->sizes, a.q.t->dtype) : Tensor();
    Vars made = t.emit_several(backward, reads, settings_of(a),
                               {t.run.empty_like(a.q.t), t.run.empty_like(a.k.t), t.run.empty_like(a.v.t), bias});
    t.takes(made, a.backward_scratch);
    return made;
  });
}

/// The output lies as [batch, positions, heads, width] does.
Tensor by_positions(Tracer& t, const Attended& a) {
  return op::transpose(
      t.run, t.run.empty({a.q.t->sizes[0], a.q.t->sizes[2], a.q.t->sizes[1], a.v.t->sizes[3]}, a.q.t->dtype), 1, 2);
}

/// preprocess_mask: rows that do not begin at multiples of eight are padded, and cut again.
Var aligned(Tracer& t, const Var& mask) {
  bool fits = true;
  for (int d = 0; d + 1 < mask.t->rank(); ++d) fits = fits && mask.t->strides[d] % 8 == 0;
  if (fits || mask.t->rank() == 0) return mask;
  const std::int64_t n = mask.t->sizes.back();
  return grad::slice(t, grad::constant_pad(t, mask, {0, 8 - n % 8}), mask.t->rank() - 1, 0, n);
}

Var efficient(Tracer& t, Attended a) {
  const std::int64_t b = a.q.t->sizes[0], h = a.q.t->sizes[1], s = a.q.t->sizes[2];
  if (a.mask) a.mask = grad::expand(t, aligned(t, a.mask), {b, h, s, a.k.t->sizes[2]});
  const bool any = a.q.wants() || a.k.wants() || a.v.wants();
  const Tensor sums = t.run.empty({b, h, any ? (s + 31) / 32 * 32 : 0}, DType::float32);
  const Tensor seed = t.run.empty({}, DType::int64);
  return fused(t, a, "_scaled_dot_product_efficient_attention",
               {by_positions(t, a), sums, seed, t.run.empty({}, DType::int64)});
}

Var cudnn(Tracer& t, const Attended& a) {
  const Tensor sums = t.run.empty({a.q.t->sizes[0], a.q.t->sizes[1], a.q.t->sizes[2], 1}, DType::float32);
  return fused(t, a, "_scaled_dot_product_cudnn_attention",
               {t.run.empty_like(a.q.t), sums, t.run.empty({}, DType::int64), t.run.empty({}, DType::int64)});
}

Var flash(Tracer& t, Attended a) {
  const std::int64_t width = a.q.t->sizes[3], more = (width + 7) / 8 * 8 - width;
  if (more)
    for (Var* v : {&a.q, &a.k, &a.v}) *v = grad::constant_pad(t, *v, {0, more});
  const Tensor sums = t.run.empty({a.q.t->sizes[0], a.q.t->sizes[1], a.q.t->sizes[2]}, DType::float32);
  const Var y = fused(t, a, "_scaled_dot_product_flash_attention",
                      {t.run.empty_like(a.q.t), sums, t.run.empty({2}, DType::int64), t.run.empty({}, DType::int64)});
  return more ? grad::slice(t, y, 3, 0, width) : y;
}

Var repeated(Tracer& t, const Var& x, std::int64_t heads) {
  if (x.t->sizes[1] == heads) return x;
  Dims wide{x.t->sizes[0], x.t->sizes[1], heads / x.t->sizes[1], x.t->sizes[2], x.t->sizes[3]};
  return grad::reshape(t, grad::expand(t, grad::unsqueeze(t, x, 2), wide), {wide[0], heads, wide[3], wide[4]});
}

/// _scaled_dot_product_attention_math: both operands are scaled by the root.
Var taken_apart(Tracer& t, Attended a) {
  const DType dtype = a.q.t->dtype;
  for (Var* v : {&a.q, &a.k, &a.v}) *v = grad::convert(t, *v, prim::wide(dtype));
  const prim::Number root{std::sqrt(a.scale)};
  const Var q = grad::mul(t, a.q, root);
  if (a.grouped) {
    a.k = repeated(t, a.k, q.t->sizes[1]);
    a.v = repeated(t, a.v, q.t->sizes[1]);
  }
  if (a.causal) {
    const Var lower = prim::unary_as(t, "ge", prim::full(t, {a.q.t->size(-2), a.k.t->size(-2)}, "1", DType::boolean),
                                     DType::boolean, "causal");
    a.mask = float_mask(t, lower, q.t->dtype);
  }
  Var scores = grad::matmul(t, q, grad::mul(t, grad::transpose(t, a.k, -2, -1), root));
  if (a.mask) scores = grad::add(t, scores, a.mask);
  Var weights = grad::safe_softmax(t, scores);
  if (a.p > 0) weights = grad::dropout(t, weights, a.p);
  return grad::convert(t, grad::matmul(t, weights, a.v), dtype);
}

/// What the eager row would choose, which asks whether the mask wants a gradient.
AttentionBackend chosen(Tracer& t, const Attended& a) {
  const Tensor mask = a.mask ? t.run.alias(a.mask.t, a.mask.t->sizes, a.mask.t->strides, 0) : Tensor();
  if (mask) mask->requires_grad_leaf = a.mask.wants();
  ScopedValue<bool> grads(t.run.grad_mode, true);
  return choose_attention(t.run, {a.q.t, a.k.t, a.v.t, mask, a.p, a.causal, a.grouped});
}

Vars attention_op(Tracer& t, const Items& i) {
  Attended a{i.var(0), i.var(1), i.var(2), i.optional(3)};
  a.p = i.none(4) ? 0 : i.number(4);
  a.causal = !i.none(5) && i.boolean(5);
  a.scale = i.none(6) ? 1 / std::sqrt(static_cast<double>(a.q.t->size(-1))) : i.number(6);
  a.grouped = !i.none(7) && i.boolean(7);
  const AttentionBackend backend = chosen(t, a);
  if (backend != AttentionBackend::math) {
    const Scratch scratch = scratch_of(t, i);
    a.forward_scratch = scratch.forward;
    a.backward_scratch = scratch.backward;
  }
  a.mask = float_mask(t, a.mask, a.q.t->dtype);
  if (backend == AttentionBackend::cudnn) return {cudnn(t, a)};
  if (backend == AttentionBackend::flash) return {flash(t, a)};
  if (backend == AttentionBackend::efficient) return {efficient(t, a)};
  return {taken_apart(t, a)};
}

}  // namespace

void add_attention(CompiledOps& ops) { ops["scaled_dot_product_attention"] = attention_op; }

}  // namespace memplan::compiled
