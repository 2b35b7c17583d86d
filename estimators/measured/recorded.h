// A recorded run as a measurement: what PyTorch asked its allocator for, event by event, and its own counters.
#pragma once

#include "estimators/graph/graph.h"
#include "estimators/measured/measurement.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// Of the run of `setup` at `batch` (0: none is open) in a recording. Failure(usage) where it is not one that ran.
Measurement measurement_from_recording(const Model& recording, const TrainingSetup& setup, std::int64_t batch);

}  // namespace memplan
