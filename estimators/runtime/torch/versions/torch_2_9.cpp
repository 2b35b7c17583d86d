// PyTorch 2.9: with CUDA 12.8 and cuDNN 9.10.
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_10();

TorchProfile torch_2_9() {
  TorchProfile p = torch_2_10();
  p.version = "2.9";
  p.compared = false;
  // 2.9.0 and 2.9.1 take no notice of the newer name (pytorch/pytorch#183387), and before there was none.
  p.allocator_variable = "PYTORCH_CUDA_ALLOC_CONF";
  p.changes = {};
  return p;
}

}  // namespace memplan
