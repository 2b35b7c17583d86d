// What a module's caller passed to it, by the caller's line.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// `hidden_states` of "position_embeddings = self.rotary_emb(hidden_states, position_ids)": what the caller's frame has
/// bound to the first argument's name so far, if the tape's calls end where the module is called. Invalid where a line
/// without an op has bound it, or where the argument is no name.
ValueId first_argument(const Tape& tape, const Scope& module);

}  // namespace memplan
