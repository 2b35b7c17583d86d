// Lists of tensors that the file shows where they are joined.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the call with which a list lets go of it; -1: none has it. A list that a name holds has its members until
/// the name is bound again; one that the caller handed in, as long as the caller's frame runs. Where a loop's next turn
/// joins a list of the same name without the member, a line without an op has bound the name in between.
std::vector<std::int32_t> held_in_joined_lists(const Tape& tape, const Frames& frames);

}  // namespace memplan
