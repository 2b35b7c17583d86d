// run_steps of pipeline.h with somebody looking on.
#pragma once

#include "estimators/autograd/interpreter.h"
#include "estimators/pipeline.h"

namespace memplan {

/// As run_steps; `observer` (may be null) sees every call of the steps, also those that run again under checkpointing.
Result<Schedule> run_steps_observed(const Tape& tape, const TrainingSetup& setup, const Device& device, CallObserver* observer);

}  // namespace memplan
