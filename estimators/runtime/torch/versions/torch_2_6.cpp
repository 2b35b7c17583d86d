// PyTorch 2.6: with CUDA 12.4 and cuDNN 9.1.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_7();

TorchProfile torch_2_6() {
  TorchProfile p = based_on(torch_2_7(), "2.6");
  p.workspaces.cudnn = "9.1";
  p.reads.erase("TORCH_CUBLASLT_UNIFIED_WORKSPACE");  // names in libtorch_cuda.so
  return p;
}

}  // namespace memplan
