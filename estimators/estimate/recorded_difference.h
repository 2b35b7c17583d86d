// How far the calls of a recording are from its steps, where both are known.
#pragma once

#include <optional>

#include "estimators/estimate/estimate.h"
#include "estimators/graph/graph.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// A setup that ran, estimated twice: by the steps that were written down, and by running the recorded calls on paper.
struct BothRoutes {
  TrainingSetup setup;
  std::int64_t batch = 0;  ///< 0 where it is not open
  Estimate steps, calls;
};

/// Of run `run` of the recording, at its recorded batch that is nearest to `batch`. None where the calls are not of any
/// batch that ran.
std::optional<BothRoutes> both_routes(const Model& model, std::size_t run, std::int64_t batch,
                                      const TrainingSetup& setup);

/// The range of an estimate by the calls of a recording: what both routes differ by at the nearest recorded setup, as
/// much larger as the estimate is. None where nothing can be compared.
std::optional<RangeSource> recorded_difference(const Model& model, const TrainingSetup& setup,
                                               const Estimate& estimate);

}  // namespace memplan
