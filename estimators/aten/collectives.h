// Ops that strategies put into a tape where ranks exchange tensors. What they allocate is what torch.distributed's
// functional collectives do (torch/distributed/_functional_collectives.py of PyTorch 2.11): results in new tensors, the
// input held until the result is there. NCCL's own buffers are outside of PyTorch's counters.
//
//   memplan::all_reduce_backward(x)              identity; the gradient is summed over the ranks into a new tensor
//   memplan::all_reduce(x)                       the sum in a new tensor; the gradient passes
//   memplan::all_gather(x, dim, ranks, reduce)   the ranks' parts side by side; the gradient is reduce-scattered, or,
//                                                with reduce=False, this rank's part of it is taken
//   memplan::reduce_scatter(x, dim, ranks)       this rank's part of the sum; the gradient is gathered
//   memplan::vocab_embedding(weight, ids, rows)  DTensor's embedding of this rank's rows of the vocabulary, before the sum
//   memplan::exchange(x)                         an all-to-all of equal parts; the gradient goes back the same way
#pragma once

#include "estimators/aten/registry.h"

namespace memplan {

void register_collectives(Registry&);

}  // namespace memplan
