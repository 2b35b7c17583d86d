// Lines that call torch.utils.checkpoint, in files whose exporter leaves no other trace of it.
#pragma once

#include <string_view>

#include "estimators/tape/tape.h"

namespace memplan {

/// A call of checkpoint() or of what libraries wrap around it.
bool calls_checkpoint(std::string_view source);

/// `checkpoint(f, x) if … else f(x)`: the line runs, but it may call the other one.
bool may_checkpoint(std::string_view source);

/// Numbers the stretches that such lines call without a choice (Call::checkpoint). A line that is given a module has
/// one stretch per module; one that is given a function has a new one where the module comes again with which it began.
void number_checkpointed_lines(Tape& tape);

}  // namespace memplan
