// What one rank of a job on several GPUs needs at least, and how long its step takes, from short runs that thousands of
// setups share.
//
// A model of equal blocks need not be run as a whole to know how it grows. At the turn from the forward to the backward
// pass the same events come in the same order whatever the depth and the batch, and the bytes alive at one of them are
// a straight line in either: so four runs with few blocks and few samples say what is alive there at any depth and
// batch. The highest of these events is a bound from below for the peak of the whole model.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "planner/cost/step_time.h"

namespace memplan {

/// A straight line in the batch.
struct BatchLine {
  double at_zero = 0, slope = 0;
  double at(std::int64_t batch) const { return at_zero + slope * static_cast<double>(batch); }
};

/// The whole model on one device, for one kind of tape (precision, checkpointing, adapters), or what one of `tensor`
/// ranks has of it.
struct DepthLines {
  std::int64_t tensor = 1;  ///< ranks that the tape was cut for; the bytes below are then one rank's
  WorkLine work;
  std::int64_t blocks = 0;
  BatchLine boundary;                    ///< bytes that one block hands to the next
  BatchLine kept;                        ///< bytes other than weights and gradients that wait for the backward pass
  std::vector<BatchLine> turn;           ///< the same at the events from there on that are highest for some batch
  double parameters = 0, gradients = 0;  ///< bytes; buffers count as parameters
  /// Likewise of one of the equal blocks; nothing where the depth cannot be changed.
  struct Block {
    BatchLine kept;
    double parameters = 0, gradients = 0, elements = 0;
  } block;
  double others_at(std::int64_t batch) const;  ///< the highest of `turn`
};

/// Depths and batches of the four runs. A model whose depth cannot be changed has `low` = `high` = `whole`, one whose
/// batch the file fixes `small` = `large`.
struct DepthRuns {
  std::int64_t low = 0, high = 0, whole = 0;
  std::int64_t small = 1, large = 2;
};

/// Tensor parallelism of a setup by itself, over so many ranks.
inline ParallelSetup tensor_alone(const ParallelSetup& given, std::int64_t ranks, bool sequence) {
  ParallelSetup alone;
  alone.gpus = alone.tensor = ranks;
  alone.sequence_parallel = sequence;
  alone.loss_parallel = given.loss_parallel && ranks > 1;
  return alone;
}

/// `tape_at(blocks, batch)` makes the tape, cut for `setup.parallel`'s tensor-parallel ranks. Failure where a run
/// fails.
DepthLines depth_lines(const DepthRuns& runs,
                       const std::function<std::shared_ptr<const Tape>(std::int64_t, std::int64_t)>& tape_at,
                       const TrainingSetup& setup, const Device& device);

/// Process bytes that the heaviest rank needs at least. `setup.parallel` is resolved; `batch` and `micro_batches` (of a
/// pipeline, or accumulated) stand for those of the setup. With the lines of the uncut tape all bytes count as divided
/// by the tensor-parallel ranks, so those of the cut tape are the higher bound.
Bytes least_of_rank(const DepthLines& lines, const TrainingSetup& setup, std::int64_t batch, std::int64_t micro_batches,
                    const Device& device);

/// Bytes of one micro-batch that one rank of a pipeline sends to the next.
double crossing_bytes(const DepthLines& lines, const ParallelSetup& parallel, std::int64_t batch);

/// Forward, backward and repeated parts of one micro-batch of the whole model, cut as tensor and context parallelism
/// cut.
StepTime share_of_micro_batch(const DepthLines& lines, const ParallelSetup& parallel, std::int64_t batch,
                              const DeviceRates& rates, const TimeAssumptions& assumptions);

/// Seconds of one optimizer step of the heaviest rank; `micro_batch` is that of share_of_micro_batch().
StepTime rank_step_time(const DepthLines& lines, const TrainingSetup& setup, std::int64_t batch,
                        std::int64_t micro_batches, const StepTime& micro_batch, const DeviceRates& rates,
                        const TimeAssumptions& assumptions);

}  // namespace memplan
