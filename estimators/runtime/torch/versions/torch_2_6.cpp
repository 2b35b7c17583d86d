// PyTorch 2.6: with CUDA 12.4 and cuDNN 9.1.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_7();

TorchProfile torch_2_6() {
  TorchProfile p = based_on(torch_2_7(), "2.6");
  p.workspaces.cudnn = "9.1";
  return p;
}

}  // namespace memplan
