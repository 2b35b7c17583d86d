// Attention as scaled_dot_product_attention and nn.MultiheadAttention's fast path share it.
#pragma once

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// Heads in front of positions: [batch, heads, positions, features].
struct Attention {
  Tensor q, k, v, mask;
  double p = 0;
  bool causal = false, gqa = false;
};

/// The kernel that PyTorch takes (select_sdp_backend).
AttentionBackend choose_attention(Run& r, const Attention& a);

/// What it returns and takes on the way.
Tensor attend(Run& r, Attention a, AttentionBackend backend);

}  // namespace memplan
