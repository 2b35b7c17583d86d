// PyTorch 2.14: with CUDA 13.0 and cuDNN 9.24.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_13();

TorchProfile torch_2_14() {
  TorchProfile p = torch_2_13();
  p.version = "2.14";
  p.compared = false;
  p.workspaces.cudnn = "9.24";
  // native/transformers/cuda/mem_eff_attention/kernel_forward.h
  p.attention.efficient_groups_heads = true;
  p.attention.efficient_keeps_seed = true;
  p.kernels.group_norm_keeps_channels_last = true;

  p.changes = {
      {"activations, temporaries",
       "memory-efficient attention takes fewer heads of keys than of queries, so fp32 and masked attention keeps no "
       "scores",
       "attention"},
      {"workspaces", "cuDNN 9.24 chooses other engines for some convolutions", "conv"},
  };
  return p;
}

}  // namespace memplan
