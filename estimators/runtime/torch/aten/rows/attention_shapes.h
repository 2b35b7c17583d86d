// What attention asks of the shapes of its arguments.
#pragma once

#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

/// Failure(input) unless queries, keys and values are of one batch and the mask broadcasts to queries times keys.
inline void check_attention(const TensorBody& q, const TensorBody& k, const TensorBody& v, const TensorBody* mask) {
  const auto unfit = [](const char* what) {
    fail_input(what, "aten::scaled_dot_product_attention", "the model may fix a dimension that you changed");
  };
  if (q.rank() < 2) fail_input("attention needs tensors of at least two dimensions");
  if (k.rank() != q.rank() || v.rank() != q.rank()) return;
  if (q.rank() > 2 && (q.sizes[0] != k.sizes[0] || k.sizes[0] != v.sizes[0]) && k.sizes[0] != 1)
    unfit("attention's queries and keys are of different batches");
  if (k.size(-2) != v.size(-2)) unfit("attention has not as many keys as values");
  if (!mask) return;
  Dims weights = q.sizes;
  weights[weights.size() - 1] = k.size(-2);
  if (!(op::broadcast(weights, mask->sizes) == weights)) unfit("attention's mask does not fit its queries and keys");
}

/// What every fused kernel asks for (sdp_utils_cpp.h: check_tensor_shapes, check_batch_size_and_num_heads_dense).
inline bool fit_without_broadcast(const TensorBody& q, const TensorBody& k, const TensorBody& v, bool grouped) {
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) return false;
  const bool same_heads = q.sizes[1] == k.sizes[1] && q.sizes[1] == v.sizes[1];
  return q.sizes[0] == k.sizes[0] && q.sizes[0] == v.sizes[0] && (grouped || same_heads);
}

}  // namespace memplan
