// Pipeline parallelism: how a model is cut into stages, and in which order a rank runs its micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "estimators/setup/parallel.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// The calls of one stage. Values keep their ids, so that what one stage sends is what another receives.
struct Stage {
  Tape tape;
  std::vector<ValueId> received;  ///< activations from the stage before, in order of their making
  std::vector<ValueId> sent;      ///< to the stage behind
};

/// pipeline x virtual_stages stages of whole blocks, as even as they go, the first ones one block longer; what comes
/// before the first block is the first stage's, what comes after the last block the last stage's. Values that
/// hang on no parameter (positions, masks) are made by every stage that needs them. A parameter tied over stages is
/// there on each. `rank`: only the stages of that pipeline rank, in order. Failure(usage) where there are fewer blocks
/// than stages, or a split does not add up to the blocks.
std::vector<Stage> cut_stages(const Tape& tape, const ParallelSetup& setup, std::optional<std::int64_t> rank = {});

/// The zero-bubble schedules, whose backward passes run in two parts.
inline bool splits_backward(PipelineSchedule s) {
  return s == PipelineSchedule::zero_bubble || s == PipelineSchedule::zbv;
}

/// Blocks that stages are made of. Failure(usage) where the model has none.
std::int64_t count_blocks(const Tape& tape, const ParallelSetup& setup);

/// Number of blocks of every stage, in order: the user's split, or as even as they go.
std::vector<std::int64_t> blocks_per_stage(std::int64_t blocks, const ParallelSetup& setup);

/// Stages of one pipeline rank, in order: every pipeline-th, or there and back in a V (zbv).
std::vector<std::int64_t> stages_of_rank(const ParallelSetup& setup, std::int64_t rank);

/// The zero-bubble schedules run the backward pass in two parts: gradients of the stage's inputs, later those of its
/// weights.
enum class BackwardPart : std::uint8_t { whole, inputs, weights };

/// One forward or backward pass of one micro-batch through one of the rank's stages (`chunk`: 0 is its first).
struct Action {
  bool forward = true;
  std::int64_t chunk = 0, micro_batch = 0;
  BackwardPart part = BackwardPart::whole;
};

/// What `rank` does in one step (torch/distributed/pipelining/schedules.py of PyTorch 2.11: ScheduleGPipe,
/// Schedule1F1B, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble).
std::vector<Action> actions_of(const ParallelSetup& setup, std::int64_t rank);

/// The most forward passes without their (whole) backward pass at any time.
std::int64_t most_in_flight(const std::vector<Action>& actions);

}  // namespace memplan
