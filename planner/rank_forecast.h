// What the estimate of a rank will come to, from estimates of the same rank with few blocks.
#pragma once

#include <utility>

#include "planner/tapes.h"

namespace memplan {

/// Two depths at which a model of this depth is run in place of the whole; 0 and 0 where it is no deeper than they are.
/// Both have the parity of the whole, because every second block may be checkpointed, and are deep enough that what
/// happens at the ends of the model (prefetched weights, buffers that wait) does not count for the blocks between.
std::pair<std::int64_t, std::int64_t> shallow_depths(const Depth& depth);

/// Bytes of one micro-batch on a rank of a pipeline.
struct Crossing {
  double sent = 0;  ///< from one stage to the next
  double kept = 0;  ///< in one block, for its backward pass
};

struct Forecast {
  Bytes process;
  bool in_optimizer = false;  ///< the highest point lies in the optimizer's step
};

/// Process bytes of the heaviest rank, on a straight line through the depths and the micro-batches in flight; the
/// estimate itself where the model is shallow. Not a bound: it says which estimates are worth making, and no report
/// prints it as one. `blocks` are those that pipelines are cut by. Failure as of the estimate.
Forecast forecast_of_rank(Tapes& tapes, const TrainingSetup& setup, const Depth& depth, std::int64_t blocks,
                          const Crossing& crossing, const Device& device);

}  // namespace memplan
