// All setups of a job on several GPUs: choices of knobs, ways to spread, micro-batches.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/parallel_space.h"
#include "planner/suggest.h"
#include "planner/tapes.h"

namespace memplan {

/// One choice of the knobs other than parallelism and batch.
struct Choice {
  Point point;          ///< of the space
  TrainingSetup setup;  ///< the present parallelism
  std::string flags;
  int turned = 0, distance = 0;
  bool precision = false;   ///< turns the precision
  std::uint32_t major = 0;  ///< the first choice that differs in minor knobs only
};

/// One setup, small, because there are hundreds of thousands.
struct Place {
  std::uint32_t option = 0, choice = 0;
  std::int64_t batch = 1, micro_batches = 1;
  double seconds = 0;  ///< per sample
  Bytes bound;
  int turned = 0, distance = 0;
};

class JobSpace {
 public:
  /// `present.parallel` is resolved. Failure as of tape_of_model.
  JobSpace(const Model& model, const TrainingSetup& present, const Device& device, const SuggestOptions& options,
           Tapes& tapes);

  TrainingSetup setup_of(const Place& place) const;
  /// What has to be added to (or replaced in) the command; empty for the present setup.
  std::string flags_of_place(const Place& place) const;
  Place home() const;
  bool is_home(const Place& place) const;
  /// Samples of a micro-batch and how many micro-batches, for the samples of a step.
  std::vector<std::pair<std::int64_t, std::int64_t>> batches_of(const ParallelOption& option) const;

  const TrainingSetup present;
  Space space;
  std::vector<Choice> choices;
  ParallelChoices parallel;
  Depth depth;
  std::int64_t batch = 1, micro = 1, samples = 1;  ///< of the present setup; samples of a step, of all GPUs
  std::int64_t blocks = 1;                         ///< that pipelines are cut by

 private:
  void make_choices();
  void make_options(const TrainingSetup& alone, const Device& device, const SuggestOptions& options, Tapes& tapes);

  bool keep_samples_ = true, splits_ = false;
};

}  // namespace memplan
