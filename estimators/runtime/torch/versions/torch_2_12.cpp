// PyTorch 2.12: with CUDA 13.0 and cuDNN 9.20.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_11();

TorchProfile torch_2_12() {
  TorchProfile p = based_on(torch_2_11(), "2.12");

  // aten/src/ATen/cuda/CublasHandlePool.cpp: TORCH_CUBLASLT_UNIFIED_WORKSPACE is on.
  p.workspaces.cublas_lt_shares_cublas = true;
  // native/transformers/cuda/sdp_utils.cpp: "cuDNN dropout probability resolution is limited to 1/16"
  p.attention.cudnn_dropout_in_sixteenths = true;
  p.kernels.embedding_sorts_needed_bits = true;
  p.kernels.extremes_together = true;
  p.kernels.group_norm_wide_statistics = true;
  p.compared = true;
  p.workspaces.cudnn = "9.20";
  // torch/optim/adagrad.py no longer refuses parameters on CUDA (pytorch/pytorch#153038).
  p.optimizer.fused.insert(OptimizerKind::adagrad);
  // libc10_cuda.so: BlockComparatorRegistrationCounter. 2.11 has BlockComparatorSize, 2.13 ...SizeCounterAddress.
  p.allocator.oldest_first = true;

  p.changes = {
      {"workspaces", "cuBLASLt takes cuBLAS's workspace: its own 1 MiB is gone"},
      {"workspaces, activations, temporaries",
       "cuDNN's attention runs only where dropout is a multiple of 1/16; else flash attention does", "attention"},
      {"temporaries", "the backward of an embedding sorts by the bits that its rows need, in less scratch memory",
       "embedding"},
  };
  return p;
}

}  // namespace memplan
