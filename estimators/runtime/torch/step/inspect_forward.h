// A look into a forward pass: what shapes and storages the values of a tape have.
#pragma once

#include <functional>

#include "estimators/runtime/torch/autograd/interpreter.h"

namespace memplan {

/// Runs one forward pass of the setup's reference program in which no value goes before the end, without checkpoints,
/// and shows the values to `look`. Failure as run_steps.
void inspect_forward(const Tape& tape, const TrainingSetup& setup, const Device& device,
                     const std::function<void(const Run&, const Environment&)>& look);

}  // namespace memplan
