// Names that a line without an op has bound: "residual = hidden_states".
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the call with which such a name lets go of it; -1: none had it.
/// Of "hidden_states = residual + self.dropout(hidden_states)" the one operand that no visible line has bound to either
/// name is what `residual` stands for, if no visible line of the frame binds that one. It does so until the frame
/// returns, or until a later line shows it to stand for another value: from where that one was made. A list that
/// such a name stands for, "skips[-1 - i]", has what the line reads without a name until the frame returns. `lines`: by
/// binding (names.h).
std::vector<std::int32_t> held_by_other_names(const Tape& tape, const Frames& frames,
                                              const std::vector<Statement>& lines, const std::vector<ValueLife>& lives);

}  // namespace memplan
