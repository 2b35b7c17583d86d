// Softmax, dropout and scaled dot product attention. Backend choice: native/transformers/cuda/sdp_utils.cpp of
// PyTorch 2.11; sizes of temporaries: measured event by event, rules in the comments.
#include "estimators/runtime/torch/aten/attention.h"

#include <algorithm>
#include <cmath>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/rows/attention_shapes.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/setup.h"

namespace memplan {

namespace {

using Backend = AttentionBackend;

bool half(DType d) { return d == DType::float16 || d == DType::bfloat16; }
std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

/// sdp_utils.cpp: priority cuDNN, flash, efficient, math where the profile has cuDNN first, else flash first and cuDNN
/// last.
AttentionBackend choose_attention(Run& r, const Attention& a) {
  if (r.options.attention != Backend::automatic) return r.options.attention;
  const DType d = a.q->dtype;
  const int sm = r.device.sm();
  const AttentionRules& rules = r.profile.attention;
  const std::int64_t dim = a.q->size(-1), heads = a.q->size(1), kv_heads = a.k->size(1);
  const bool ranks = fit_without_broadcast(*a.q, *a.k, *a.v, a.gqa);
  // check_last_dim_stride_equals_1_dense
  const bool last_dense = a.q->strides.back() == 1 && a.k->strides.back() == 1 && a.v->strides.back() == 1 &&
                          (!a.mask || a.mask->rank() == 0 || a.mask->strides.back() == 1);
  const bool same_dim = a.k->size(-1) == dim && a.v->size(-1) == dim;
  const bool mask_grad = a.mask && r.needs_grad(a.mask);
  const bool flash = ranks && last_dense && same_dim && half(d) && sm >= rules.fused_from_sm &&
                     dim <= rules.flash_widest && !a.mask && !(a.causal && a.q->size(2) != a.k->size(2));
  const bool grouped = a.gqa && heads != kv_heads;
  const std::int64_t align = half(d) ? 8 : 4;
  const bool efficient = ranks && last_dense && (half(d) || d == DType::float32) &&
                         (sm >= rules.fused_from_sm || d != DType::bfloat16) && dim % align == 0 &&
                         a.v->size(-1) % align == 0 && !(grouped && !rules.efficient_groups_heads);
  const bool cudnn = ranks && last_dense && half(d) && sm >= rules.fused_from_sm && dim % 8 == 0 &&
                     rules.cudnn_takes(dim, sm) && a.v->size(-1) % 8 == 0 && rules.cudnn_takes(a.v->size(-1), sm) &&
                     !mask_grad && a.k->size(2) != 1 &&
                     !(rules.cudnn_dropout_in_sixteenths && a.p * 16 != std::floor(a.p * 16));
  if (cudnn && rules.cudnn_first.count(sm)) return Backend::cudnn;
  if (flash) return Backend::flash;
  if (efficient) return Backend::efficient;
  return Backend::math;
}

namespace {

/// A boolean mask becomes a floating one of its own shape: where(mask, 0, -inf) with two scalars on the device.
Tensor float_mask(Run& r, const Tensor& mask, DType dtype) {
  if (!mask || mask->dtype != DType::boolean) return mask;
  Tensor zero = r.empty({}, dtype), minus_inf = r.empty({}, dtype);
  return r.empty_like(mask, dtype);
}

/// In the alphabetical order of their names.
void save_inputs(Run& r, Node* node, const Attention& a) {
  r.save(node, a.k);
  r.save(node, a.q);
  r.save(node, a.v);
}

/// Workspace of the backward kernel for one head: per tile of queries an accumulator and 16 bytes of locks; where the
/// kernel cannot hold them, also fp32 sums of dk and dv. Tiles by what fits into the device's shared memory.
std::int64_t backward_bytes(int sm, bool is_half, std::int64_t s, std::int64_t n, std::int64_t d, std::int64_t dv) {
  const bool small = sm == 86 || sm == 89;  // 100 KiB of shared memory
  const std::int64_t widest = std::max(d, dv), unit = widest > 128 ? 128 : 64;
  std::int64_t rows = 64, cols = 64;
  if (widest > 64 && !is_half && sm >= 80 && !small) rows = 128;
  if (widest > (small ? 128 : 64) && is_half) rows = 128;
  if (widest > 64 && is_half && sm >= 80 && widest <= (small ? 96 : 128)) cols = 128;
  const bool sums = is_half && widest > (small ? 96 : 128);
  const std::int64_t queries = (s + rows - 1) / rows * ((d + cols - 1) / cols) * (rows * cols * 4 + 16);
  return queries + (sums ? up(n, 64) * (up(d, unit) + up(dv, unit)) * 4 : 0);
}

Tensor efficient(Run& r, const Attention& a) {
  const std::int64_t b = a.q->sizes[0], h = a.q->sizes[1], s = a.q->sizes[2], n = a.k->sizes[2], d = a.q->sizes[3],
                     dv = a.v->sizes[3], kv = a.k->sizes[1];
  const bool grad = r.needs_grad(a.q) || r.needs_grad(a.k) || r.needs_grad(a.v);
  const bool seeded = r.profile.attention.efficient_keeps_seed && a.p == 0;
  TensorList made = r.dispatched("aten::_scaled_dot_product_efficient_attention", [&] {
    Tensor seed = seeded ? r.empty({}, DType::int64) : Tensor(), offset = seeded ? r.empty({}, DType::int64) : Tensor();
    Tensor out = op::transpose(r, r.empty({b, s, h, dv}, a.q->dtype), 1, 2);
    Tensor lse = r.empty({b, h, grad ? up(s, 32) : 0}, DType::float32);
    // Half outputs wider than one tile are summed in fp32.
    if (half(a.q->dtype) && dv > 128) Tensor sums = r.empty({b, s, h, dv}, DType::float32);
    return seeded ? TensorList{out, lse, seed, offset} : TensorList{out, lse};
  });
  const Tensor out = made[0], lse = made[1];
  Tensor seed = seeded ? made[2] : Tensor(), offset = seeded ? made[3] : Tensor();
  made.clear();
  const int sm = r.device.sm();
  Node* node = r.record({a.q, a.k, a.v, a.mask}, {out}, [=](Run& r, Node& nd, TensorList& g) {
    const DType dt = nd.inputs[0].dtype;
    auto bshd = [&](std::int64_t len, std::int64_t heads, std::int64_t dim) {
      return op::transpose(r, r.empty({b, len, heads, dim}, dt), 1, 2);
    };
    Tensor grad;  // the kernel reads [B, S, H, D]
    if (!is_contiguous(*op::transpose(r, g[0], 1, 2))) grad = r.empty({b, s, h, dv}, dt);
    Tensor dq = bshd(s, h, d), dk = bshd(n, kv, d), dvalue = bshd(n, kv, dv);
    Tensor dk_all, dv_all;  // of every query's head
    if (kv != h) dk_all = bshd(n, h, d), dv_all = bshd(n, h, dv);
    // The bias's gradient has every head's scores, with rows padded to a multiple of 16; the engine sums it.
    Tensor dbias;
    if (nd.wants(3)) {
      const std::int64_t padded = up(n, 16);
      dbias = r.empty({b, h, s, padded}, dt);
      if (padded != n) dbias = op::slice(r, dbias, 3, 0, n);
    }
    Tensor delta;
    if (dt == DType::float32) {
      // (grad.float() * out.float()).sum(-1), transposed and made contiguous
      Tensor product = r.empty({b, s, h, dv}, DType::float32);
      delta = op::contiguous(r, op::transpose(r, r.empty({b, s, h}, DType::float32), 1, 2));
    } else {
      delta = r.empty({b, h, s}, DType::float32);
    }
    Tensor workspace = r.scratch(Bytes(checked_mul(checked_mul(b, h), backward_bytes(sm, half(dt), s, n, d, dv))));
    delta.reset();
    workspace.reset();
    dv_all.reset();
    dk_all.reset();
    grad.reset();
    return TensorList{dq, dk, dvalue, dbias};
  });
  if (a.mask) r.save(node, a.mask);
  save_inputs(r, node, a);
  r.save_output(node, lse);
  r.save_output(node, out);
  if (offset) r.save_output(node, offset);
  if (seed) r.save_output(node, seed);
  seed.reset();
  return out;
}

/// Output in the layout of the query where the query is dense, as cuDNN and flash give it.
Tensor like_query(Run& r, const Tensor& q, std::int64_t dv) {
  if (q->sizes[3] == dv) return r.empty_like(q);
  // alloc_with_matching_layout: the dimensions in the order of the query's strides.
  Dims sizes{q->sizes[0], q->sizes[1], q->sizes[2], dv}, strides = Dims::filled(4, 0);
  std::vector<int> order{0, 1, 2, 3};
  std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return q->strides[i] < q->strides[j]; });
  std::int64_t step = 1;
  for (int d : order) {
    strides[d] = step;
    step = checked_mul(step, sizes[d]);
  }
  return r.empty_strided(sizes, strides, q->dtype);
}

Tensor cudnn(Run& r, const Attention& a) {
  const std::int64_t b = a.q->sizes[0], h = a.q->sizes[1], s = a.q->sizes[2], n = a.k->sizes[2], d = a.q->sizes[3],
                     kv = a.k->sizes[1];
  const bool grad = r.needs_grad(a.q) || r.needs_grad(a.k) || r.needs_grad(a.v);
  TensorList made = r.dispatched("aten::_scaled_dot_product_cudnn_attention", [&] {
    Tensor seed = r.empty({}, DType::int64), offset = r.empty({}, DType::int64);
    Tensor out = like_query(r, a.q, a.v->sizes[3]);
    Tensor lse = grad ? r.empty({b, h, s, 1}, DType::float32) : Tensor();
    if (s > 1) Tensor workspace = r.scratch(Bytes(256), Category::workspace);
    return TensorList{out, lse, seed, offset};
  });
  Tensor out = made[0], lse = made[1], seed = made[2], offset = made[3];
  made.clear();
  const std::size_t at = a.mask ? 1 : 0;
  Node* node = r.record({a.q, a.k, a.v}, {out}, [=](Run& r, Node& nd, TensorList&) {
    Tensor dq = r.empty_like(nd.saved[at + 1]), dk = r.empty_like(nd.saved[at]), dv = r.empty_like(nd.saved[at + 2]);
    // fp32 sums of dq, the row sums, 256 bytes; with fewer key heads also dk and dv for every query head.
    std::int64_t bytes = b * h * s * d * 4 + b * h * s * 4 + 256;
    if (kv != h) bytes += 2 * b * h * n * d * 2;
    Tensor workspace = r.scratch(Bytes(bytes), Category::workspace);
    return TensorList{dq, dk, dv};
  });
  if (a.mask) r.save(node, a.mask);
  save_inputs(r, node, a);
  if (lse) r.save_output(node, lse);
  r.save_output(node, out);
  r.save_output(node, offset);
  r.save_output(node, seed);
  seed.reset();
  return out;
}

/// num_splits_heuristic of flash_api.cpp.
std::int64_t flash_splits(std::int64_t blocks, std::int64_t slots, std::int64_t key_blocks) {
  if (static_cast<float>(blocks) >= 0.8f * static_cast<float>(slots)) return 1;
  const std::int64_t most = std::min<std::int64_t>({128, slots, key_blocks});
  auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  auto eligible = [&](std::int64_t n) { return n == 1 || ceil_div(key_blocks, n) != ceil_div(key_blocks, n - 1); };
  auto efficiency = [&](std::int64_t n) {
    const float waves = static_cast<float>(blocks * n) / static_cast<float>(slots);
    return waves / std::ceil(waves);
  };
  float best = 0;
  for (std::int64_t n = 1; n <= most; ++n)
    if (eligible(n)) best = std::max(best, efficiency(n));
  for (std::int64_t n = 1; n <= most; ++n)
    if (eligible(n) && efficiency(n) >= 0.85f * best) return n;
  return 1;
}

Tensor flash(Run& r, const Attention& a) {
  const std::int64_t b = a.q->sizes[0], h = a.q->sizes[1], s = a.q->sizes[2], n = a.k->sizes[2], d = a.q->sizes[3],
                     kv = a.k->sizes[1];
  const std::int64_t rounded = up(d, d <= 128 ? 32 : 64);
  TensorList made = r.dispatched("aten::_scaled_dot_product_flash_attention", [&] {
    Tensor out = r.empty_like(a.q);
    Tensor lse = r.empty({b, h, s}, DType::float32);
    Tensor rng, unused;
    {
      Tensor lse_parts, out_parts;
      if (a.p == 0) {
        const std::int64_t block = d <= 64 ? 256 : d <= 128 ? 128 : 64;
        const std::int64_t splits =
            flash_splits(b * h * ((s + 63) / 64), r.device.multiprocessors * 2, (n + block - 1) / block);
        if (splits > 1) {
          lse_parts = r.empty({splits, b, h, s}, DType::float32);
          out_parts = r.empty({splits, b, h, s, rounded}, DType::float32);
        }
      }
      rng = r.empty({2}, DType::int64);
      unused = r.empty({}, DType::int64);
      if (a.p > 0) {
        Tensor state = r.empty({2}, DType::int64);
        rng = std::move(state);
      }
      lse_parts.reset();
      out_parts.reset();
    }
    return TensorList{out, lse, rng, unused};
  });
  Tensor out = made[0], lse = made[1], rng = made[2], unused = made[3];
  made.clear();
  Node* node = r.record({a.q, a.k, a.v}, {out}, [=](Run& r, Node& nd, TensorList& g) {
    const Tensor& q = nd.saved[1];
    // The kernel reads [B, S, H, D]: other layouts of the gradient and the output are copied.
    auto dense = [&](const Tensor& t) { return is_contiguous(*op::transpose(r, t, 1, 2)); };
    Tensor grad, kept;
    if (!dense(g[0])) grad = r.empty({b, s, h, d}, q->dtype);
    if (!dense(nd.saved[4])) kept = r.empty({b, s, h, d}, q->dtype);
    Tensor dq = r.empty_like(q), dk = r.empty_like(nd.saved[0]), dv = r.empty_like(nd.saved[2]);
    Tensor row_sums = r.empty({b, h, up(s, 128)}, DType::float32);
    Tensor sums = r.empty({b, up(s, 128), h, rounded}, DType::float32);
    Tensor dk_all, dv_all;
    if (kv != h) {
      dk_all = r.empty({b, n, h, d}, q->dtype);
      dv_all = r.empty({b, n, h, d}, q->dtype);
    }
    dv_all.reset();
    dk_all.reset();
    sums.reset();
    row_sums.reset();
    kept.reset();
    grad.reset();
    return TensorList{dq, dk, dv};
  });
  save_inputs(r, node, a);
  r.save_output(node, lse);
  r.save_output(node, out);
  r.save_output(node, rng);
  r.save_output(node, unused);
  lse.reset();
  rng.reset();
  unused.reset();
  return out;
}

/// _safe_softmax: softmax, then rows that are masked out entirely are filled with zeros.
Tensor safe_softmax(Run& r, const Tensor& x) {
  Tensor y = op::softmax(r, x, -1);
  Dims rows = x->sizes;
  rows[rows.size() - 1] = 1;
  Tensor masked = r.empty(x->sizes, DType::boolean);
  Tensor all = r.empty(rows, DType::boolean);
  { Tensor zero = r.empty({}, y->dtype); }
  all.reset();
  return y;
}

Tensor repeat_heads(Run& r, const Tensor& x, std::int64_t heads) {
  const std::int64_t have = x->sizes[1];
  if (have == heads) return x;
  Tensor five = op::unsqueeze(r, x, 2);
  Dims wide = five->sizes;
  wide[2] = heads / have;
  Tensor copy = op::clone(r, op::expand(r, five, wide), op::Format::contiguous);
  return op::flatten(r, copy, 1, 2);
}

/// _scaled_dot_product_attention_math: half types are computed in fp32.
Tensor math(Run& r, Attention a) {
  const DType origin = a.q->dtype;
  const bool widen = half(origin);
  Tensor q = a.q, k = a.k, v = a.v;
  if (widen) {
    q = op::to(r, q, DType::float32);
    k = op::to(r, k, DType::float32);
    v = op::to(r, v, DType::float32);
  }
  Tensor wide_q = q, wide_k = k, wide_v = v;  // named in PyTorch, so they live to the end
  q = op::mul_number(r, q);
  Tensor mask = a.mask;
  if (a.causal) {
    const Dims square{q->size(-2), k->size(-2)};
    Tensor ones = r.empty(square, DType::boolean);
    Tensor lower = r.empty(square, DType::boolean);
    ones.reset();
    mask = float_mask(r, lower, q->dtype);
  }
  if (a.gqa) {
    k = repeat_heads(r, k, q->sizes[1]);
    v = repeat_heads(r, v, q->sizes[1]);
  }
  Tensor scaled = op::mul_number(r, k);
  Tensor scores = op::matmul(r, q, op::transpose(r, scaled, -2, -1));
  scaled.reset();
  if (mask) scores = op::add_(r, scores, mask);
  Tensor weights = safe_softmax(r, scores);
  scores.reset();
  if (a.p > 0) weights = op::dropout(r, weights, a.p, true);
  if (!widen) {
    Tensor out = op::matmul(r, weights, v);
    q.reset();
    return out;
  }
  Tensor unused = op::to(r, weights, origin);
  Tensor out = op::matmul(r, weights, v);
  out = op::to(r, out, origin);
  for (Tensor* t : {&weights, &k, &v, &mask, &q, &wide_v, &wide_k, &wide_q}) t->reset();
  return out;
}

}  // namespace

Tensor attend(Run& r, Attention a, Backend backend) {
  switch (backend) {
    case Backend::cudnn:
      return cudnn(r, a);
    case Backend::flash: {
      // pad_last_dim: the head dimension is padded to a multiple of 8, and the output sliced.
      const std::int64_t dim = a.q->sizes[3], more = up(dim, 8) - dim;
      if (more == 0) return flash(r, a);
      for (Tensor* t : {&a.q, &a.k, &a.v})
        *t = call_op(r, "aten::constant_pad_nd", {*t, Value(ValueList{0, Value(more)})})[0].tensor();
      return op::slice(r, flash(r, a), 3, 0, dim);
    }
    case Backend::efficient:
      return efficient(r, a);
    default:
      return math(r, a);
  }
}

namespace {

/// preprocess_mask (native/transformers/attention.cpp): the efficient kernel wants rows that begin at multiples of 8. A
/// mask with others is padded and sliced again, above autograd, even where its length is a multiple already.
Tensor aligned(Run& r, const Tensor& mask) {
  const Dims& strides = mask->strides;
  if (mask->rank() == 0 || std::all_of(strides.begin(), strides.end() - 1, [](auto n) { return n % 8 == 0; }))
    return mask;
  const std::int64_t n = mask->sizes.back();
  const Value pads(ValueList{0, Value(8 - n % 8)});
  return op::slice(r, call_op(r, "aten::constant_pad_nd", {mask, pads})[0].tensor(), -1, 0, n);
}

ValueList run_sdpa(Run& r, Args& args) {
  Attention a{args.tensor(0), args.tensor(1),  args.tensor(2), args.optional_tensor(3),
              args.number(4), args.boolean(5), args.boolean(7)};
  check_attention(*a.q, *a.k, *a.v, a.mask.get());
  const Backend backend = choose_attention(r, a);
  a.mask = float_mask(r, a.mask, a.q->dtype);
  if (a.mask && backend == Backend::efficient)
    a.mask = op::expand(r, aligned(r, a.mask), {a.q->sizes[0], a.q->sizes[1], a.q->sizes[2], a.k->sizes[2]});
  return {attend(r, std::move(a), backend)};
}

}  // namespace

void register_attention(OpTable& t) {
  t.add("aten::_safe_softmax", "self, dim, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {safe_softmax(r, a.tensor(0))}; });
  t.add("aten::scaled_dot_product_attention",
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False", run_sdpa);
}

}  // namespace memplan
