// PyTorch 2.9: with CUDA 12.8 and cuDNN 9.10.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_10();

TorchProfile torch_2_9() {
  TorchProfile p = torch_2_10();
  p.version = "2.9";
  p.compared = false;
  p.kernels.fused_rms_norm = true;
  p.changes = {};
  return p;
}

}  // namespace memplan
