// Random numbers that a model may draw in training only: noise and masks of its own augmentation.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Whether the file was exported in training mode, and draws meet a tensor that is none of them: `x * keep`, `x +
/// noise`.
bool has_training_draws(const Tape& tape);

/// To be called for inference. Reading::training_draws says whether they are drawn all the same, which is noted, or
/// what they meet takes the place of the result, as where `if self.training:` draws.
void read_training_draws(Tape& tape);

}  // namespace memplan
