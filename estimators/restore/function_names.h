// Names inside of functions that are no module's `forward`, whose lines exporters do not record: from what the function
// is known to do (the fact "statements" of data/libraries/modules.json).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// One op of a function, in the order in which they run, and the names that its result gets.
struct FunctionStep {
  std::string_view op;                   ///< without namespace and overload: "mul"
  std::vector<std::string_view> names;   ///< may be none
  bool appends = false;                  ///< to the list that the last name holds
  std::int32_t inner = 0, bound_at = 0;  ///< which inner function it runs in (0: none); the step that binds its names
  std::int32_t again = -1;               ///< of a loop's last step: the step with which the next turn begins
};

/// "query=mul ( key=pad value=pad ) { v=sub states,list+=matmul } [ mask=triu exp ]": steps in their order. `( )` binds
/// its names when the last step is through, as a tuple does; `{ }` runs again and again; names in `[ ]` go at its end,
/// as those of a function called inside do. Brackets of one kind are not nested. The views point into `text`.
std::vector<FunctionStep> parse_function(std::string_view text);

/// By op of a run: the step it is, or -1; such that most are one and few steps are left out. Ops that are no step and
/// steps that did not run (a branch not taken, a conversion to the same dtype) are passed over.
std::vector<std::int32_t> match_steps(const std::vector<FunctionStep>& steps, const std::vector<std::string_view>& ops);

/// By value: the call with which the name goes that a known function held it by; -1: none did.
std::vector<std::int32_t> held_in_functions(const Tape& tape, const Frames& frames);

}  // namespace memplan
