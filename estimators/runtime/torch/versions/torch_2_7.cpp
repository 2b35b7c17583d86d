// PyTorch 2.7: with CUDA 12.6 and cuDNN 9.5.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_8();

TorchProfile torch_2_7() {
  TorchProfile p = based_on(torch_2_8(), "2.7");
  p.workspaces.cudnn = "9.5";
  return p;
}

}  // namespace memplan
