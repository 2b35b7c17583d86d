// Ops that strategies put into a tape where ranks exchange tensors. What they allocate is what torch.distributed's
// functional collectives do (torch/distributed/_functional_collectives.py of PyTorch 2.11): results in new tensors, the
// input held until the result is there. Megatron-LM sums in place. NCCL's own buffers are outside of PyTorch's
// counters.
//
//   memplan::all_reduce_backward(x, in_place)    identity; the gradient is summed over the ranks into a new tensor
//   memplan::all_reduce(x, in_place)             the sum in a new tensor; the gradient passes
//   memplan::all_gather(x, dim, ranks, reduce)   the ranks' parts side by side; the gradient is reduce-scattered, or,
//                                                with reduce=False, this rank's part of it is taken
//   memplan::reduce_scatter(x, dim, ranks)       this rank's part of the sum; the gradient is gathered
//   memplan::vocab_embedding(weight, ids, rows)  DTensor's embedding of this rank's rows of the vocabulary, before the
//   sum memplan::column_linear(x, weight, bias, dim, ranks, transposed)   Megatron-LM's ColumnParallelLinear under
//   sequence parallelism
//                                                (megatron/core/tensor_parallel/layers.py): the parts of x are gathered
//                                                for the product and again for the weight's gradient; what is kept is
//                                                this rank's part
//   memplan::vocab_cross_entropy(logits, target) Megatron-LM's loss of each token over a part of the vocabulary
//                                                (megatron/core/tensor_parallel/cross_entropy.py): keeps the softmax in
//                                                fp32
//   memplan::loss_parallel(logits, target, reduction)   PyTorch's loss_parallel() over a part of the vocabulary
//                                                (rows/loss_parallel.cpp)
//   memplan::exchange(x)                         an all-to-all of equal parts; the gradient goes back the same way
#pragma once

#include "estimators/runtime/torch/aten/op_table.h"

namespace memplan {

void register_collectives(OpTable&);
void register_loss_parallel(OpTable&);

}  // namespace memplan
