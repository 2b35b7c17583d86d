// The reference program of PyTorch, with somebody looking on.
#pragma once

#include "estimators/pipeline.h"
#include "estimators/runtime/torch/autograd/interpreter.h"

namespace memplan {

/// What run_steps of pipeline.h runs for PyTorch; `observer` (may be null) sees every call of the steps, also those
/// that run again under checkpointing. `ranks` are the setup's, resolved.
Result<Schedule> run_steps_observed(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks,
                                    const Device& device, CallObserver* observer);

/// How many of a step's accumulated micro-batches are run: all on one GPU. On several, the first, two that repeat each
/// other and the last one, which reduces gradients, stand for all: from the second one on each asks for the same bytes.
/// (What the allocator caches meanwhile may settle later: compared with all, allocated bytes differed by up to 0.2 %.)
std::int64_t micro_batches_run(const TrainingSetup& setup);

/// How many of `setup.steps` are run: from the second or third one on all ask for the same, so that no number of steps
/// takes ten times as long as three (all with --loss-history, whose steps keep more and more).
std::int64_t steps_run(const TrainingSetup& setup);

}  // namespace memplan
