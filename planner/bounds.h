// What setups need at least, and how long they take, from few runs on paper shared by many setups.
//
// The bytes that live at an event are a straight line in the batch: parameters stay, all else grows with the samples.
// The highest of such lines is convex, so the line through two batches, drawn on beyond them, lies below it. That makes
// a bound from below for every other batch; it rejects setups and is never printed as what one needs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "planner/cost/step_time.h"
#include "planner/tapes.h"

namespace memplan {

/// Runs of one kind of tape (precision, checkpointing …) at two batches.
struct Rehearsal {
  WorkLine work;
  std::int64_t batch[2];
  double peak[2];          ///< requested bytes of a step without optimizer
  double forward_peak[2];  ///< likewise, until the loss is taken
  double parameters = 0, gradients = 0;
  /// Bound from below at any batch.
  double peak_at(std::int64_t b) const;
  double forward_peak_at(std::int64_t b) const;
};

/// Runs the batches `small` and `large` in place of the setup's; one run, that holds for any batch, where the file
/// fixes it
/// (`small` = `large`). Optimizer and accumulation do not matter.
Result<Rehearsal> rehearse(Tapes& tapes, const TrainingSetup& setup, std::int64_t small, std::int64_t large,
                           const Device& device);

/// What an optimizer adds at least, by the shapes of its state (torch/optim/*.py, bitsandbytes): no run is needed.
struct OptimizerNeeds {
  double state = 0;      ///< bytes that stay
  double temporary = 0;  ///< bytes beside parameters, gradients and state while it steps
};
OptimizerNeeds optimizer_needs(const OptimizerSetup& optimizer, double trained_bytes, std::int64_t trained_elements);

/// Process bytes of weights, gradients and the optimizer's state alone: no checkpoint and no attention kernel changes
/// them.
Bytes least_kept(const Rehearsal& rehearsal, const TrainingSetup& setup, const Device& device);

/// Process bytes that the setup needs at least.
Bytes least(const Rehearsal& rehearsal, const TrainingSetup& setup, std::int64_t batch, const Device& device);

/// Seconds of one optimizer step.
StepTime step_time(const Rehearsal& rehearsal, const TrainingSetup& setup, std::int64_t batch, const DeviceRates& rates,
                   const TimeAssumptions& assumptions);

}  // namespace memplan
