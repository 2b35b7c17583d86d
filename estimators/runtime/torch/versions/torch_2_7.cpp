// PyTorch 2.7: with CUDA 12.6 and cuDNN 9.5.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_8();

TorchProfile torch_2_7() {
  TorchProfile p = torch_2_8();
  p.version = "2.7";
  p.compared = false;
  p.workspaces.cudnn = "9.5";
  p.changes = {};
  return p;
}

}  // namespace memplan
