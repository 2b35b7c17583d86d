// Activation checkpointing under a budget: which modules to recompute so that the step stays below it at the least
// cost.
#pragma once

#include "estimators/estimate/range.h"
#include "estimators/pipeline.h"

namespace memplan {

struct CheckpointPlan {
  std::vector<CheckpointRegion> regions;  ///< for Tape::checkpoints; empty: everything may be kept
  double cost = 0;                        ///< of what runs twice, in seconds of the cost model below
  double forward = 0;                     ///< of the whole forward pass
  double lower_bound = 0;  ///< no choice of modules costs less in the model of the chain; 0 where stretches nest
  Bytes peak;              ///< of the step with these regions, by replay: what the budget bounds
  Bytes budget;
};

/// What a region of the tape may be: one call of a module, or neighbours in an nn.Sequential. The chain's figures are
/// read off a step without checkpoints; the choice is replayed, and its budget shrunk or widened until the step with
/// the chosen regions is the cheapest that stays under the budget. The budget bounds allocated bytes
/// (torch.cuda.max_memory_allocated); without one (`setup.checkpoint_budget`) it bounds process bytes by what `device`
/// has less `setup.margin`, or the default margin. Where no such choice is small enough, stretches nest
/// (estimators/transforms/nested_checkpointing.h): the lists of repeated blocks, with as many stored inputs of blocks
/// as the budget allows. Failure(usage) where even the smallest step is above the budget, with its bytes. `room`: what
/// the budget is smaller by.
Result<CheckpointPlan> plan_checkpoints(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                        Bytes room = {});

/// Whether there is a plan under the budget, and how small the step becomes by the choices that save most. A search
/// over batches asks this: it takes a few replays, and the figure follows the batch nearly in a straight line.
struct SmallestStep {
  bool fits = false;                      ///< plan_checkpoints would find a plan
  Bytes peak;                             ///< of what the budget bounds
  std::vector<CheckpointRegion> regions;  ///< what makes it so small; empty: nothing does
};
Result<SmallestStep> smallest_step(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// What the budget bounds of the step with these regions: one replay.
Result<Bytes> peak_with_regions(const std::vector<CheckpointRegion>& regions, const Tape& tape,
                                const TrainingSetup& setup, const Device& device);

/// A tape of so many calls takes so long that fewer plans are tried for a batch.
constexpr std::size_t many_calls = 250;

/// Whether another choice may bring a step of this peak under the budget. What the allocator keeps apart differs by
/// some percent between choices, seldom by more than 10.
constexpr bool nearly_fits(const Tape& tape, Bytes peak, Bytes budget) {
  return (tape.calls.size() > many_calls ? peak.count / 10 * 9 : peak.count / 5 * 4) <= budget.count;
}

/// A tape with its checkpoints, and the setup that needs no plan any more.
struct Planned {
  Tape tape;
  TrainingSetup setup;
};

/// With the regions that the setup asks for: those of answer_for() with `checkpoint_optimal`, as it is otherwise.
Result<Planned> with_planned_checkpoints(const Model& model, const TrainingSetup& setup, const Device& device);

/// estimate_tape() and estimate() of pipeline.h for setups that may leave the choice of checkpoints to the planner.
/// Plans leave no room for a range here.
Result<Estimate> estimate_planned_tape(const Tape& tape, const TrainingSetup& setup, const Device& device);
Result<Estimate> estimate_planned(const Model& model, const TrainingSetup& setup, const Device& device);

/// With the range of with_range(): what a report says of a setup. A plan whose range does not fit on the card, though
/// its peak does, is made again with as much room; so are those of the functions below.
Result<Estimate> answer_for(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device);

/// Of a setup that is only judged: the range is added where the verdict would be `fits` without it, since it costs
/// several estimates.
Result<Estimate> estimate_to_judge(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin);
Result<Estimate> estimate_to_judge(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                   const Device& device, Bytes margin);

/// Of a setup of which only that verdict is asked, `fits` or not: the range ends where it is too large already. With
/// another verdict the range is a part of it.
Result<Estimate> estimate_to_search(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin,
                                    RangeLimit& limit);

/// The same with these regions in place of a plan.
Result<Estimate> estimate_to_search(const Model& model, const Tape& tape, const std::vector<CheckpointRegion>& regions,
                                    const TrainingSetup& setup, const Device& device, Bytes margin, RangeLimit& limit);

/// What calls are timed by, per second.
struct CallRates {
  double fp32 = 0, half = 0;  ///< floating-point operations
  double memory = 0;          ///< bytes
};

/// An H100 SXM. Plans are made by its figures on every card: only their ratios matter.
inline constexpr CallRates planning_rates{67e12, 989e12, 3.35e12};

/// Seconds that each call of a forward pass takes: the larger of its floating-point operations and the bytes that it
/// reads and writes (runtime/torch/aten/cost.h), over the rates.
Result<std::vector<double>> call_seconds(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                         const CallRates& rates = planning_rates);

/// What checkpointed regions cost to run again; those inside of another one run again with it and by themselves.
double recompute_seconds(const std::vector<CheckpointRegion>& regions, const std::vector<double>& seconds);

}  // namespace memplan
