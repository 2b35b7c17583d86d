// PyTorch 2.10: with CUDA 12.8 and cuDNN 9.10.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_11();

TorchProfile torch_2_10() {
  TorchProfile p = based_on(torch_2_11(), "2.10");
  p.compared = true;
  p.workspaces.cudnn = "9.10";
  p.kernels.cudnn_recurrent_bf16 = false;
  // native/transformers/cuda/sdp_utils.cpp: cuDNN stands first from cuDNN 9.15 on.
  p.attention.cudnn_first.clear();
  return p;
}

}  // namespace memplan
