// Many micro-batches and steps that repeat each other, and the few that a search looks at in their place.
#pragma once

#include <algorithm>
#include <cstdint>

#include "estimators/setup/setup.h"

namespace memplan {

/// The setup with a few micro-batches and steps for many, which repeat these. A search looks at many setups with few,
/// and asks again with all for what it answers.
inline TrainingSetup few_repetitions(TrainingSetup setup) {
  constexpr std::int64_t few_micro_batches = 2, many_steps = 4, few_steps = 3;
  if (setup.keep_loss_history) return setup;  // every repetition holds more than the one before
  setup.accumulate = std::min(setup.accumulate, few_micro_batches);
  if (setup.steps > many_steps) setup.steps = few_steps;
  return setup;
}

/// Micro-batches after the second ask for what it asks for, and those of a pipeline in its steady state for what the
/// ones before ask for: what is open of these is what is open of all. `warm_up`: micro-batches until that state; 0:
/// what is open grows with each of them.
inline TrainingSetup least_repetitions(TrainingSetup setup, std::int64_t warm_up) {
  if (setup.keep_loss_history) return setup;
  setup.accumulate = std::min<std::int64_t>(setup.accumulate, 2);
  if (warm_up > 0) setup.parallel.micro_batches = std::min(setup.parallel.micro_batches, warm_up);
  return setup;
}

/// Whether the setup has no more than these.
inline bool has_few_repetitions(const TrainingSetup& setup) {
  const TrainingSetup few = few_repetitions(setup);
  return few.accumulate == setup.accumulate && few.steps == setup.steps;
}

}  // namespace memplan
