// State that a method of a module's own puts into attributes.
#pragma once

#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: an attribute has it until the next forward pass makes it anew. "self.initialize_decoder_states(memory)" is
/// a statement of its own, so nothing but attributes can carry what it makes to the lines below that read it; those may
/// put others of the same sizes there. Lines of a longer statement that end alike are told by what runs next: the line
/// above them that goes on.
std::vector<bool> states_of_methods(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives);

/// What may be held beyond that: others of the same sizes, while the first ones are still saved for the backward pass,
/// and tensors that the method got and keeps as they are, `self.memory = memory`.
Bytes bytes_of_method_states(const Tape& tape);

}  // namespace memplan
