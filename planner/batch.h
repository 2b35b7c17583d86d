// The batch that a setup runs at, whoever says so: the setup, the file, or nobody.
#pragma once

#include <cstdint>

#include "estimators/graph/graph.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// By --dim, --batch, the size in the file or that of memplan.export's arguments; 1 where nothing tells.
std::int64_t batch_of(const Model& model, const TrainingSetup& setup);

/// The setup with its batch in `batch` alone.
TrainingSetup with_batch(const Model& model, TrainingSetup setup, std::int64_t batch);

}  // namespace memplan
