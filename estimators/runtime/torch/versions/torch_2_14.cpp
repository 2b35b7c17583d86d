// PyTorch 2.14: with CUDA 13.0 and cuDNN 9.24.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_13();

namespace {

/// derivatives.yaml: equal elements share the gradient, and what is masked is masked in place.
void split_ties(OpTable& t) {
  const auto set = [&](std::string_view name, std::string_view formulas) {
    for (Row& row : t.rows())
      if (row.name == name) row.derivatives = Derivatives(formulas);
  };
  constexpr std::string_view larger =
      "self: masked_fill_(where(self == other, grad / 2, grad), self < other, 0) | "
      "other: masked_fill_(where(self == other, grad / 2, grad), self > other, 0)";
  for (const char* name :
       {"aten::maximum", "aten::minimum", "aten::max.other", "aten::min.other", "aten::fmax", "aten::fmin"})
    set(name, larger);
  set("aten::clamp_min.Tensor",
      "self: masked_fill_(where(self == min, grad / 2, grad), self < min, 0) | "
      "min: masked_fill_(where(self == min, grad / 2, grad), self > min, 0)");
  set("aten::clamp_max.Tensor",
      "self: masked_fill_(where(self == max, grad / 2, grad), self > max, 0) | "
      "max: masked_fill_(where(self == max, grad / 2, grad), self < max, 0)");
}

}  // namespace

TorchProfile torch_2_14() {
  TorchProfile p = based_on(torch_2_13(), "2.14");
  p.compared = true;
  p.workspaces.cudnn = "9.24";
  // native/transformers/cuda/mem_eff_attention/kernel_forward.h
  p.attention.cudnn_wide_is_widest = true;
  p.attention.efficient_groups_heads = true;
  p.attention.efficient_keeps_seed = true;
  p.kernels.group_norm_saves_given = true;
  p.op_changes.push_back(split_ties);

  p.changes = {
      {"activations, temporaries",
       "memory-efficient attention takes fewer heads of keys than of queries, so fp32 and masked attention keeps no "
       "scores",
       "attention"},
      {"workspaces, activations, temporaries",
       "attention with heads wider than 128 runs in cuDNN on Hopper only where they have 256", "attention"},
      {"workspaces", "cuDNN 9.24 chooses other engines for some convolutions", "conv"},
  };
  return p;
}

}  // namespace memplan
