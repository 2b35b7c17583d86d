// PyTorch 2.6: with CUDA 12.4 and cuDNN 9.1.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_7();

TorchProfile torch_2_6() {
  TorchProfile p = torch_2_7();
  p.version = "2.6";
  p.compared = false;
  p.workspaces.cudnn = "9.1";
  p.changes = {};
  return p;
}

}  // namespace memplan
