// What sessions of ONNX Runtime have that PyTorch's runs have not: an order of the weights that nobody chose, and the
// regions of an arena.
#pragma once

#include <vector>

#include "estimators/measured/compare.h"
#include "estimators/measured/measurement.h"
#include "estimators/replay/memory_map.h"
#include "estimators/schedule/schedule.h"

namespace memplan {

/// The schedule with its weights in the order in which the measured session loaded them, told by their sizes. That
/// order is the order of a hash table, another one in every process, so that the file does not tell it; what the arena
/// takes depends on it. Weights that the session does not have come last.
Schedule in_measured_order(Schedule schedule, const Measurement& measured);

/// `driver`: what the replay of the same schedule asked of the driver.
ComparedRegions compare_regions(const std::vector<DriverCall>& driver, const Measurement& measured);

}  // namespace memplan
