// The fast path of nn.MultiheadAttention. Rules: native/transformers/cuda/attention.cu of PyTorch 2.11.
#include "estimators/runtime/torch/aten/attention.h"

namespace memplan {

namespace {

/// Without a kernel that does all of attention: queries, keys and values are one tensor, the scores are normalized in
/// place and the result is written over the queries. Under a mask, which becomes one of booleans, the normalized
/// scores are a tensor of their own (native/cuda/SoftMax.cu: masked_softmax_cuda).
ValueList native_mha_in_steps(Run& r, const Tensor& x, Args& a, bool weights, bool averaged) {
  const std::int64_t b = x->sizes[0], t = x->sizes[1], width = x->sizes[2], heads = a.integer(5);
  Tensor packed = op::linear(r, x, a.tensor(1), {});
  Tensor qkv = r.empty({3 * b, heads, t, width / heads}, x->dtype);
  packed.reset();
  Tensor scores = r.empty({b, heads, t, t}, x->dtype);
  if (const std::int64_t type = a.integer_or(9, -1); type >= 0) {
    const Tensor mask = a.optional_tensor(8);
    Tensor hidden;
    if (type == 0)
      hidden = r.empty({b, heads, t, t}, DType::boolean);  // expanded
    else if (mask && mask->dtype != DType::boolean)
      hidden = r.empty(mask->sizes, DType::boolean);
    scores = r.empty({b, heads, t, t}, x->dtype);
  }
  if (!weights) scores.reset();
  Tensor context = r.empty({b, t, width}, x->dtype);
  Tensor y = op::linear(r, context, a.tensor(3), a.optional_tensor(4));
  context.reset();
  if (weights && averaged) scores = r.empty({b, t, t}, x->dtype);
  qkv.reset();
  if (!weights) return {y};
  return {y, scores};
}

/// Fast path of nn.MultiheadAttention in inference (native/transformers/cuda/attention.cu): packed projection,
/// attention on views of it, output projection. Heads of a multiple of 8 features whose weights nobody asks for.
ValueList run_native_mha(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const std::int64_t heads = a.integer(5), width = x->size(-1);
  const bool weights = a.boolean(6), averaged = a.boolean(7);
  if (x->rank() != 3 || heads <= 0 || width % heads != 0)
    fail_input("multi-head attention: the heads do not fit the width");
  if (weights || width / heads % 8 != 0 || a.integer_or(9, -1) >= 0)
    return native_mha_in_steps(r, x, a, weights, averaged);
  const auto head = [&](const Tensor& t) {
    return op::transpose(r, op::view(r, t, {x->sizes[0], x->sizes[1], heads, width / heads}), 1, 2);
  };
  {
    const Tensor tried = head(x);
    if (choose_attention(r, Attention{tried, tried, tried, {}}) == AttentionBackend::math)
      return native_mha_in_steps(r, x, a, weights, averaged);
  }
  Tensor packed = op::linear(r, x, a.tensor(1), a.optional_tensor(2));
  Tensor context;
  {
    Attention s;
    Tensor* parts[] = {&s.q, &s.k, &s.v};
    for (int i = 0; i < 3; ++i) *parts[i] = head(op::slice(r, packed, 2, i * width, (i + 1) * width, 1));
    const Tensor out = attend(r, s, choose_attention(r, s));
    context = op::reshape(r, op::transpose(r, out, 1, 2), {x->sizes[0], x->sizes[1], width});
  }
  Tensor y = op::linear(r, context, a.tensor(3), a.optional_tensor(4));
  context.reset();
  packed.reset();
  return {y};
}

}  // namespace

void register_multihead_attention(OpTable& t) {
  t.add("aten::_native_multi_head_attention",
        "query, qkv_weight, qkv_bias, proj_weight, proj_bias, num_head, need_weights=False, average_attn_weights=True, "
        "mask=None, mask_type=None",
        run_native_mha);
}

}  // namespace memplan
