// Names that a loop binds anew on lines which run no op, "hidden_states = layer_outputs[0]".
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the call with which a loop's turn ends that was the last to give the value to a module; -1: none was.
/// The same line calls a module in each turn, by a name of the loop's, so its arguments are the same expressions. Where
/// one was this value and is the result of that turn in the next, the name of the loop's frame that held the value
/// holds the result now. Another name may stand for the value there ("hidden_states = inputs_embeds"): the one that
/// counts is what the module's own lines call their argument.
std::vector<std::int32_t> let_go_in_loops(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives);

/// By value: the end of the frame whose loop, "x = m(x)", made the value in one turn and gave it to a module two turns
/// later or more, when `x` was bound again: a list has it, of which nothing is taken. -1: all others.
std::vector<std::int32_t> held_by_lists_of_loops(const Tape& tape, const Frames& frames,
                                                 const std::vector<ValueLife>& lives);

}  // namespace memplan
