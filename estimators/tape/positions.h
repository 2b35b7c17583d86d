// Sequences that are longer than the model's table of positions.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Failure(usage) where positions that a call counts up (aten::arange, then views, casts and added constants) are
/// looked up in an embedding with fewer rows. PyTorch stops there: "index out of range in self" on the CPU, a
/// device-side assert in a CUDA kernel (aten/src/ATen/native/cuda/Indexing.cu).
void check_positions(const Tape& tape);

}  // namespace memplan
