// The two halves of lower() of pipeline.h, for those who ask for many setups of one model.
#pragma once

#include "estimators/base/error.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan {

struct TrainingSetup;

/// The whole model's forward pass, without checkpoints and before it is cut for ranks. Of the strategies only adapters,
/// frozen parameters, the dtype and context parallelism's share of the sequence are in it.
Result<Tape> lower_whole(const Model& model, const TrainingSetup& setup);

/// What checkpointing, offload and the parallelism of the setup leave to one rank. Failure(usage) as of the strategies.
Result<Tape> tape_of_rank(Tape whole, const TrainingSetup& setup);

}  // namespace memplan
