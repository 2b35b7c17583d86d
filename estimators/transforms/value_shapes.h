// What every value of a tape is when it runs: strategies that cut tensors need the shapes that the calls compute.
#pragma once

#include <optional>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/runtime/torch/aten/value.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Sizes per value of the tape; nothing for values that are no tensors.
std::vector<std::optional<Dims>> value_shapes(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// Runs the forward pass and a backward pass from its results; throws the Failure of the first op that cannot run.
/// Calls whose shapes go together may have gradients that do not: a value in a wrong place.
void run_backward(const Tape& tape, const TrainingSetup& setup, const Device& device);

}  // namespace memplan
