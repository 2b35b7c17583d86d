// PyTorch 2.13: with CUDA 13.0 and cuDNN 9.20.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_12();

TorchProfile torch_2_13() {
  TorchProfile p = torch_2_12();
  p.version = "2.13";
  p.compared = true;
  p.changes = {};
  return p;
}

}  // namespace memplan
