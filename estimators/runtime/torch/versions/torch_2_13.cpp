// PyTorch 2.13: with CUDA 13.0 and cuDNN 9.20.
#include "estimators/runtime/torch/versions/based_on.h"

namespace memplan {

TorchProfile torch_2_12();

TorchProfile torch_2_13() {
  TorchProfile p = based_on(torch_2_12(), "2.13");
  p.compared = true;
  p.allocator.oldest_first = false;  // libc10_cuda.so: BlockComparatorSizeCounterAddress
  p.fsdp.reduce_buffers = true;      // distributed/fsdp/_fully_shard/_fully_shard.py
  return p;
}

}  // namespace memplan
