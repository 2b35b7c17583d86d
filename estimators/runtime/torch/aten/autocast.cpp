#include "estimators/runtime/torch/aten/autocast.h"

#include <unordered_set>

#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

using Names = std::unordered_set<std::string_view>;

const Names& lower_names() {
  static const Names names{"_convolution",
                           "convolution",
                           "conv1d",
                           "conv2d",
                           "conv3d",
                           "conv_tbc",
                           "conv_transpose1d",
                           "conv_transpose2d",
                           "conv_transpose3d",
                           "prelu",
                           "addmm",
                           "addmv",
                           "addr",
                           "matmul",
                           "einsum",
                           "mm",
                           "mv",
                           "linalg_vecdot",
                           "linear",
                           "addbmm",
                           "baddbmm",
                           "bmm",
                           "chain_matmul",
                           "linalg_multi_dot",
                           "_thnn_fused_lstm_cell",
                           "_thnn_fused_gru_cell",
                           "lstm_cell",
                           "gru_cell",
                           "rnn_tanh_cell",
                           "rnn_relu_cell",
                           "_scaled_dot_product_flash_attention",
                           "scaled_dot_product_attention"};
  return names;
}

const Names& fp32_names() {
  static const Names names{"acos",
                           "asin",
                           "cosh",
                           "erfinv",
                           "exp",
                           "expm1",
                           "log",
                           "log10",
                           "log2",
                           "log1p",
                           "reciprocal",
                           "rsqrt",
                           "sinh",
                           "tan",
                           "pow",
                           "softplus",
                           "layer_norm",
                           "native_layer_norm",
                           "group_norm",
                           "frobenius_norm",
                           "nuclear_norm",
                           "cosine_similarity",
                           "poisson_nll_loss",
                           "cosine_embedding_loss",
                           "nll_loss",
                           "nll_loss2d",
                           "hinge_embedding_loss",
                           "kl_div",
                           "l1_loss",
                           "smooth_l1_loss",
                           "huber_loss",
                           "mse_loss",
                           "margin_ranking_loss",
                           "multilabel_margin_loss",
                           "soft_margin_loss",
                           "triplet_margin_loss",
                           "multi_margin_loss",
                           "binary_cross_entropy_with_logits",
                           "dist",
                           "pdist",
                           "cdist",
                           "renorm",
                           "logsumexp",
                           "upsample_nearest1d",
                           "_upsample_nearest_exact1d",
                           "upsample_nearest2d",
                           "_upsample_nearest_exact2d",
                           "upsample_nearest3d",
                           "_upsample_nearest_exact3d",
                           "upsample_linear1d",
                           "upsample_bilinear2d",
                           "_upsample_bilinear2d_aa",
                           "upsample_trilinear3d",
                           "upsample_bicubic2d",
                           "_upsample_bicubic2d_aa"};
  return names;
}

const Names& dtype_argument_names() {
  static const Names names{
      "prod", "softmax", "log_softmax", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm", "sum"};
  return names;
}

const Names& promote_names() {
  static const Names names{"addcdiv", "addcmul",      "atan2",     "bilinear",  "cross",      "dot",
                           "vdot",    "grid_sampler", "index_put", "tensordot", "scatter_add"};
  return names;
}

bool eligible(const Tensor& t) { return t && !t->on_host && is_floating(t->dtype) && t->dtype != DType::float64; }

/// Applies `f` to every tensor among the arguments, lists included; from the last argument to the first, as the
/// compiler that builds PyTorch's wheels evaluates `f(cached_cast(a), cached_cast(b))`.
template <class F>
void for_each_tensor(Args& args, F f) {
  for (std::size_t i = args.size(); i-- > 0;) {
    if (auto* t = std::get_if<Tensor>(&args[i].v)) f(*t);
    if (auto* list = std::get_if<ValueList>(&args[i].v))
      for (Value& v : *list)
        if (auto* t = std::get_if<Tensor>(&v.v)) f(*t);
  }
}

}  // namespace

void apply_autocast_lists(Registry& table) {
  for (Row* row : table.rows()) {
    std::string_view base = row->name;
    if (base.substr(0, 6) == "aten::") base.remove_prefix(6);
    base = base.substr(0, base.find('.'));
    if (lower_names().count(base)) row->autocast = Autocast::lower;
    if (fp32_names().count(base)) row->autocast = Autocast::fp32;
    if (dtype_argument_names().count(base)) row->autocast = Autocast::fp32_dtype_argument;
    if (promote_names().count(base)) row->autocast = Autocast::promote;
  }
}

Tensor cached_cast(Run& run, const Tensor& t, DType dtype) {
  if (!eligible(t) || t->dtype == dtype) return t;
  // Only casts of fp32 leaves to the lower type are cached; a view or a computed tensor is cast again each time.
  const bool cache = dtype == run.autocast_dtype && t->dtype == DType::float32 && t->requires_grad_leaf && !t->is_view;
  if (cache) {
    auto it = run.cast_cache.find(t.get());
    if (it != run.cast_cache.end()) return it->second.second;
  }
  Tensor cast = op::to(run, t, dtype);
  // A cached cast of a parameter still wants a gradient under no_grad; matmul asks (should_fold).
  if (cache && !run.grad_mode) cast->requires_grad_leaf = true;
  if (cache) run.cast_cache.emplace(t.get(), std::pair(t, cast));
  return cast;
}

void cast_arguments(Run& run, const Row& row, Args& args) {
  switch (row.autocast) {
    case Autocast::none:
      return;
    case Autocast::lower:
      for_each_tensor(args, [&](Tensor& t) { t = cached_cast(run, t, run.autocast_dtype); });
      return;
    case Autocast::fp32:
      for_each_tensor(args, [&](Tensor& t) { t = cached_cast(run, t, DType::float32); });
      return;
    case Autocast::promote: {
      DType widest = run.autocast_dtype;
      for_each_tensor(args, [&](Tensor& t) {
        if (eligible(t)) widest = promote(widest, t->dtype);
      });
      for_each_tensor(args, [&](Tensor& t) { t = cached_cast(run, t, widest); });
      return;
    }
    case Autocast::fp32_dtype_argument: {
      bool any = false;
      for_each_tensor(args, [&](Tensor& t) { any = any || eligible(t); });
      for (std::size_t i = 0; any && i < row.arguments.size(); ++i)
        if (row.arguments[i] == "dtype" && args[i].is_none()) args[i] = Value(DType::float32);
      return;
    }
  }
}

}  // namespace memplan
