// PyTorch 2.8: with CUDA 12.8 and cuDNN 9.10.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_9();

TorchProfile torch_2_8() {
  TorchProfile p = based_on(torch_2_9(), "2.8");
  p.compared = true;
  // native/cuda/Blas.cpp: a temporary of each call (pytorch/pytorch#156495 made it persistent).
  p.workspaces.cublas_lt_life = WorkspaceLife::per_call;
  p.reads.erase("TORCH_CUDNN_SDPA_DEPRIORITIZED");  // names in libtorch_cuda.so
  p.kernels.embedding_scan_bytes = 12;
  p.kernels.fused_rms_norm = false;
  p.optimizer.absent = {OptimizerKind::muon};  // torch/optim/_muon.py is of 2.9
  return p;
}

}  // namespace memplan
