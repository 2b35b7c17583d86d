// What a parallel setup needs from the model.
#pragma once

#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Failure(usage) where the model cannot be spread as the setup wants (more pipeline stages than blocks …), or where
/// memplan does not model the combination: nothing that was asked for is left out of an estimate silently.
void check_parallel(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks);

/// Of the communicators that a rank is in (facts/nccl.h), after resolve(): one for each kind of group. They stand
/// beside the CUDA context, outside of PyTorch's counters.
Bytes nccl_of(const ParallelSetup& setup);

}  // namespace memplan
