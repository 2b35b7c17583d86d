// Places where a file shows that the model does something of its own, but not what.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Notes, as facts, the applications of autograd.Functions, the stretches that the model checkpoints by itself and the
/// lines that call helpers, whose names are not in the file.
void note_open_places(Tape& tape);

/// As the tape's reading says: stretches that the model checkpoints by itself, and functions that keep nothing but
/// their ends, become Tape::checkpoints. Does nothing where a setup has asked for checkpoints of its own.
void checkpoint_open_places(Tape& tape);

}  // namespace memplan
