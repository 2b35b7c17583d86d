// Many micro-batches and steps that repeat each other, and the few that a search looks at in their place.
#pragma once

#include <cstdint>

#include "estimators/setup/setup.h"

namespace memplan {

/// The setup with a few micro-batches and steps for many, which repeat these. A search looks at many setups with few,
/// and asks again with all for what it answers.
inline TrainingSetup few_repetitions(TrainingSetup setup) {
  constexpr std::int64_t many = 4, few_micro_batches = 2, few_steps = 3;
  if (setup.keep_loss_history) return setup;  // every repetition holds more than the one before
  if (setup.accumulate > many) setup.accumulate = few_micro_batches;
  if (setup.steps > many) setup.steps = few_steps;
  return setup;
}

/// Whether the setup has no more than these.
inline bool has_few_repetitions(const TrainingSetup& setup) {
  const TrainingSetup few = few_repetitions(setup);
  return few.accumulate == setup.accumulate && few.steps == setup.steps;
}

}  // namespace memplan
