// The checkpoints that a recorded program made by itself.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Adds the stretches that Call::checkpoint marks to Tape::checkpoints, but for those that cut across one of these.
void keep_recorded_checkpoints(Tape& tape);

}  // namespace memplan
