// Lists, tuples and dicts that a module or a helper returns, and one name of the caller's holds.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the call with which the name lets go of the collection that has it; -1: none has.
/// `features = self.vgg(x)`: where later lines read several results of the call, it returned a collection. What they
/// read of one call of a module or a helper is in what every other call of it returns, read or not. `settled`: by
/// value, where its last use settles; `lines`: by binding (names.h).
std::vector<std::int32_t> held_in_returned_lists(const Tape& tape, const Frames& frames,
                                                 const std::vector<Statement>& lines,
                                                 const std::vector<std::int32_t>& settled);

}  // namespace memplan
