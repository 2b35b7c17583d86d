// What a session asks for: its weights, then every run's inputs, buffers, scratch and outputs.
#pragma once

#include <functional>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/reading.h"

namespace memplan::ort {

/// The first run allocates buffer by buffer; with memory patterns every later one takes them as one block. Step 1 of
/// the schedule is the first run. Weights come in the order of the file, or shuffled by `reading.order`: a session
/// takes them in that of a hash table.
Schedule schedule_of(const BoundGraph& bound, const TrainingSetup& setup, const Device& device, const Reading& reading);

/// Of sessions in which only so many nodes, the first ones of the order, run on the device: hands each of `counts` and
/// its schedule to `use`.
void for_first_nodes(const BoundGraph& bound, const TrainingSetup& setup, const Device& device, const Reading& reading,
                     const std::vector<std::size_t>& counts,
                     const std::function<void(std::size_t, const Schedule&)>& use);

}  // namespace memplan::ort
