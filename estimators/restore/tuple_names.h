// Which of a line's names holds which of its results: "x, gate, shift = self.norm(x, t)".
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the place among its line's targets of the name that holds it; -1: none does. Results come in the order in
/// which they are computed, which need not be that of the names: where later lines read them by their names, these
/// tell. `settled`: by value, where its last use settles; `lines`: by binding (names.h).
std::vector<std::int32_t> places_among_names(const Tape& tape, const Frames& frames,
                                             const std::vector<Statement>& lines, const std::vector<ValueLife>& lives,
                                             const std::vector<std::int32_t>& settled);

}  // namespace memplan
