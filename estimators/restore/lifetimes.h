// When the Python names of a forward pass let go of their tensors.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Fills Call::last_uses. A frame is one call of a module's forward. Rules (those of CPython's reference counts):
///   * an argument lives until the module that got it has returned: its caller's argument tuple holds it;
///   * a value bound to a name of a frame (`x = …`, by Call::source and Scope::source) lives until the name is bound
///     again or the frame returns;
///   * any other value goes with its last use.
/// Frames of plain functions are not in the file: names inside them count as temporaries of the line that called the
/// function. Without source lines (other exporters) every value goes with its last use, as in graph executors.
void mark_last_uses(Tape& tape);

}  // namespace memplan
