// The training steps of one pipeline rank.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/runtime/torch/step/loss.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Pipeline ranks of which one needs most: the first, the last, and the first of those in between with as many blocks.
/// The others run the same calls with fewer micro-batches in flight.
std::vector<std::int64_t> candidate_ranks(const Tape& tape, const Ranks& ranks);

/// In the steady state every forward pass is followed by a backward pass, and each such pair repeats the one before.
/// Three of them stand for all; GPipe has none.
ParallelSetup without_repetitions(ParallelSetup p);

/// What crosses the cuts between stages, and the target: found by one forward pass of the whole model, for all ranks.
struct PipelineShapes {
  struct Shape {
    Dims sizes;
    DType dtype = DType::float32;
  };
  std::map<ValueId, Shape> shapes;
  TargetShape target;
};
PipelineShapes pipeline_shapes(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks, const Device& device);

/// torch.distributed.pipelining's program for rank `rank` (of ranks.pipeline) on the tape of the whole model:
/// buffers to receive every micro-batch's activations and gradients are made once; each step runs the rank's actions
/// with return_outputs=False, then the optimizer. Gradients are reduced over data-parallel ranks after the last
/// backward. A third step that can only be the second one is its copy (repetition.h); `in_full`: it runs.
Schedule run_pipeline_steps(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks, const Device& device,
                            std::int64_t rank, const PipelineShapes& shapes, bool in_full = false);

}  // namespace memplan
