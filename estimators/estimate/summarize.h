// summarize of pipeline.h for one rank of a job.
#pragma once

#include "estimators/pipeline.h"

namespace memplan {

/// `communication`: what NCCL takes beside the context, outside of PyTorch's counters.
Result<Estimate> summarize(const Tape& tape, const Schedule& schedule, const Timeline& timeline,
                           const TrainingSetup& setup, const Device& device, Bytes communication);

}  // namespace memplan
