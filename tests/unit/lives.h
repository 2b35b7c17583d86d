// When values of a tape go, for tests.
#pragma once

#include <string_view>

#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape.h"

namespace memplan::test {

/// The index of the call after which the value of that name is gone, -1 when it stays.
inline int gone_after(Tape tape, std::string_view name) {
  bind_names(tape);
  mark_last_uses(tape);
  check(tape);
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for (ValueId id : tape.calls[i].last_uses)
      if (tape.values[static_cast<std::size_t>(id.index)].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace memplan::test
