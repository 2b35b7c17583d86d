// When the Python names of a forward pass let go of their tensors.
#pragma once

#include <vector>

#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Fills Call::last_uses from the tape's bindings (restore/names.h). A frame is one call of a module's forward. Rules
/// (those of CPython's reference counts):
///   * an argument lives until the module that got it has returned: its caller's argument tuple holds it;
///   * a value bound to a name of a frame (`x = …`, by Call::binding and Scope::binding) lives until the name is bound
///     again or the frame returns;
///   * a value that a module's frame calls `n` to its end, called as "x, n = module(…)", lives on under the caller's
///   `n`;
///   * any other value goes with its last use;
///   * what Call::releases lists goes there and nowhere else.
/// Frames of plain functions are not in the file: names inside them count as temporaries of the statement that called
/// the function, but for those of Binding::held. Without bindings (other exporters) every value goes with its last use,
/// as in graph executors.
void mark_last_uses(Tape& tape);

/// By value, as its calls alone tell.
std::vector<ValueLife> lives_of(const Tape& tape, const Frames& frames);

/// A pass may take calls away, or have values read later than they were: what Call::releases says moves to the last
/// call that reads a value, and goes where nothing makes it.
void settle_releases(Tape& tape);

}  // namespace memplan
