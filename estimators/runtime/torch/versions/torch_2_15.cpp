// PyTorch 2.15: with CUDA 13.2 and cuDNN 9.26.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_14();

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
  for (const char* name : {"aten::maximum", "aten::minimum", "aten::max.other", "aten::min.other"}) set(name, larger);
  constexpr std::string_view with_nan =
      "self: masked_fill_(where(self == other, grad / 2, grad), (self >= "
      "other).logical_or_(other.isnan()).logical_not_(), "
      "0) | other: masked_fill_(where(self == other, grad / 2, grad), (self > other).logical_or_(other.isnan()), 0)";
  for (const char* name : {"aten::fmax", "aten::fmin"}) set(name, with_nan);
  set("aten::clamp_min.Tensor",
      "self: masked_fill_(where(self == min, grad / 2, grad), self < min, 0) | "
      "min: masked_fill_(where(self == min, grad / 2, grad), self > min, 0)");
  set("aten::clamp_max.Tensor",
      "self: masked_fill_(where(self == max, grad / 2, grad), self > max, 0) | "
      "max: masked_fill_(where(self == max, grad / 2, grad), self < max, 0)");
}

}  // namespace

TorchProfile torch_2_15() {
  TorchProfile p = torch_2_14();
  p.version = "2.15";
  p.compared = true;
  // CUDAContextLight.h: isCUDABlasWorkspaceCachingEnabled() is false unless TORCH_CUBLAS_WORKSPACE_CACHE is set.
  p.workspaces.cublas_life = WorkspaceLife::per_call;
  p.workspaces.cublas_lt_life = WorkspaceLife::per_call;
  p.workspaces.cudnn = "9.26";
  p.attention.cudnn_widest_of_sm.clear();
  p.op_changes.push_back(split_ties);

  p.changes = {
      {"workspaces", "workspaces of cuBLAS and cuBLASLt live for one call and are not kept"},
      {"workspaces", "cuDNN 9.26 chooses other engines for some convolutions", "conv"},
      {"workspaces, activations, temporaries", "attention with heads wider than 128 no longer runs in cuDNN on Hopper",
       "attention"},
  };
  return p;
}

}  // namespace memplan
