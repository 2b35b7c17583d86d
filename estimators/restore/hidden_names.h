// What names that the file does not show could hold: NameReading::held.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Where a value is made and used: ids of calls, -1 where there is none.
struct ValueLife {
  std::int32_t born = -1, last = -1;
  std::int32_t top = -1;  ///< frame that sees the definition and all uses
  bool kept = false;
  bool released = false;  ///< by Call::releases
};

/// By value: until where a name that the file does not show could hold it; -1: none could. `lines`: by binding
/// (names.h).
std::vector<std::int32_t> held_by_hidden_names(const Tape& tape, const Frames& frames,
                                               const std::vector<Statement>& lines,
                                               const std::vector<ValueLife>& lives);

/// In inference a cache outlives the step that has filled it: what it may hold is made before everything else. To be
/// called before mark_last_uses, where no stretches of calls are marked.
void fill_caches_first(Tape& tape);

}  // namespace memplan
