// PyTorch 2.9: with CUDA 12.8 and cuDNN 9.10.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_10();

TorchProfile torch_2_9() {
  TorchProfile p = based_on(torch_2_10(), "2.9");
  // 2.9.0 and 2.9.1 take no notice of the newer name (pytorch/pytorch#183387), and before there was none.
  p.allocator_variable = "PYTORCH_CUDA_ALLOC_CONF";
  p.reads.erase("PYTORCH_ALLOC_CONF");
  return p;
}

}  // namespace memplan
