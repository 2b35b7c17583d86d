// What batches of other lengths leave behind in the allocator: blocks that a longer batch cannot use.
#pragma once

#include <optional>

#include "estimators/estimate/estimate.h"
#include "estimators/pipeline.h"

namespace memplan {

/// The source for a setup that names its shortest batch; none for others. Steps of several lengths, the longest among
/// them, are run in several orders, and the one that reserves most counts.
std::optional<RangeSource> batches_of_other_lengths(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                                    const Device& device, const Estimate& e);

}  // namespace memplan
