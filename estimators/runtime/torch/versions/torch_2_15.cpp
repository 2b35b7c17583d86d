// PyTorch 2.15: with CUDA 13.2 and cuDNN 9.26.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_14();

namespace {

/// derivatives.yaml: fmax and fmin choose as they did in the forward pass where one of both is not a number.
void follow_nan(OpTable& t) {
  constexpr std::string_view formulas =
      "self: masked_fill_(where(self == other, grad / 2, grad), "
      "(self >= other).logical_or_(other.isnan()).logical_not_(), 0) | "
      "other: masked_fill_(where(self == other, grad / 2, grad), (self > other).logical_or_(other.isnan()), 0)";
  for (Row& row : t.rows())
    if (row.name == "aten::fmax" || row.name == "aten::fmin") row.derivatives = Derivatives(formulas);
}

}  // namespace

TorchProfile torch_2_15() {
  TorchProfile p = based_on(torch_2_14(), "2.15");
  p.compared = p.environments_compared = true;
  // CUDAContextLight.h: isCUDABlasWorkspaceCachingEnabled() is false unless TORCH_CUBLAS_WORKSPACE_CACHE is set.
  p.workspaces.cublas_life = WorkspaceLife::per_call;
  p.workspaces.cublas_lt_life = WorkspaceLife::per_call;
  p.workspaces.cublas_lt_sets_cublas = false;  // getCurrentCUDABlasLtHandle: getCurrentCUDABlasHandle(setup=false)
  p.ddp.lazy_buckets = true;                   // nn/parallel/distributed.py
  p.fsdp.keep_unsharded = true;                // distributed/fsdp/_fully_shard/_fully_shard.py
  p.reads.insert("TORCH_CUBLAS_WORKSPACE_CACHE");
  p.workspaces.cudnn = "9.26";
  p.kernels.group_norm_keeps_channels_last = true;
  p.op_changes.push_back(follow_nan);

  p.changes = {
      {"workspaces", "workspaces of cuBLAS and cuBLASLt live for one call and are not kept"},
      {"workspaces", "cuDNN 9.26 chooses other engines for some convolutions", "conv"},
  };
  return p;
}

}  // namespace memplan
