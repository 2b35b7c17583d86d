// PyTorch 2.10: with CUDA 12.8 and cuDNN 9.10.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_11();

TorchProfile torch_2_10() {
  TorchProfile p = torch_2_11();
  p.version = "2.10";
  p.compared = false;
  p.workspaces.cudnn = "9.10";
  p.kernels.cudnn_recurrent_bf16 = false;
  // native/transformers/cuda/sdp_utils.cpp: cuDNN stands first from cuDNN 9.15 on.
  p.attention.cudnn_first.clear();
  p.changes = {};
  return p;
}

}  // namespace memplan
