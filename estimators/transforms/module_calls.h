// Calls of modules as hooks on them see it: where a module's forward begins and ends in the tape, and what goes in and
// out.
#pragma once

#include <map>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// One run of a module's forward.
struct ModuleCall {
  std::int32_t scope = -1;
  std::int32_t first = 0, last = 0;      ///< calls of the tape
  std::vector<ValueId> inputs, outputs;  ///< tensors made outside (parameters left out), and those used outside
};

/// Every module call that holds an op, and who begins and ends at a call: parents begin first and end last.
struct ModuleCalls {
  explicit ModuleCalls(const Tape& tape);
  std::vector<ModuleCall> calls;
  std::map<std::int32_t, std::vector<std::size_t>> begin_at, end_at;
};

}  // namespace memplan
