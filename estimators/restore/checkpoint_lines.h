// Lines that call torch.utils.checkpoint, in files whose exporter leaves no other trace of it.
#pragma once

#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Numbers the stretches that such lines call without a choice (Call::checkpoint), where the file has no marks of them.
/// A line that is given a module has one stretch per module; one that is given a function has a new one where the
/// module comes again with which it began.
void number_checkpointed_lines(Tape& tape);

/// Those of `checkpoint(f, x) if … else f(x)`: the line runs, but it may call the other one.
std::vector<CheckpointRegion> open_checkpoints(const Tape& tape);

/// Modules of classes of the model's own that a method of their caller's calls, two of a class or more, as `x =
/// self.encode(x)` does: the file does not show the lines of the method, which may call checkpoint().
std::vector<CheckpointRegion> hidden_checkpoints(const Tape& tape);

}  // namespace memplan
