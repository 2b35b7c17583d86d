// suggest() for a job on several GPUs: thousands of ways to spread it, few of which are worth a replay.
#pragma once

#include "planner/suggest.h"

namespace memplan {

/// `present.parallel` is resolved and says more than one GPU. Three sieves stand behind each other: a bound from below
/// (planner/rank_bounds.h), then, in the order of the modelled time per sample, an estimate of the same rank with few
/// blocks drawn on to all of them, then the estimate itself. Only what passed the last one is listed.
Suggestion suggest_parallel(const Model& model, const TrainingSetup& present, const Device& device, Bytes margin,
                            const SuggestOptions& options);

}  // namespace memplan
