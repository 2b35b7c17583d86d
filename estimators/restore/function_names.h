// Names inside of functions that are no module's `forward`, whose lines exporters do not record: from what the function
// is known to do (the fact "statements" of data/libraries/modules.json).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// What a function has converted of what one of its ops reads.
enum class Conversion : std::uint8_t {
  none,
  first_to_fp32,      ///< "^pad": F.pad(x.float())
  first_like_second,  ///< "~conv1d": F.conv1d(x.to(weight.dtype), weight)
  second_like_first,  ///< "add~": x + bias.to(x.dtype)
  result_to_fp32,     ///< "clone^": x.clone().float()
};

/// One op of a function, in the order in which they run, and the names that its result gets.
struct FunctionStep {
  std::string_view op;                  ///< without namespace and overload: "mul"
  std::vector<std::string_view> names;  ///< may be none
  std::string_view argument;            ///< of the first one: holds what the function was called with
  bool appends = false;                 ///< to the list that the last name holds
  Conversion converts = Conversion::none;
  std::int32_t inner = 0, bound_at = 0;  ///< which inner function it runs in (0: none); the step that binds its names
  std::int32_t again = -1;               ///< of a loop's last step: the step with which the next turn begins
};

/// "query=mul ( key=pad value=^pad ) { v=sub states,list+=matmul } [ mask=triu exp ]": steps in their order. `( )`
/// binds its names when the last step is through, as a tuple does; `{ }` runs again and again; names in `[ ]` go at its
/// end, as those of a function called inside do; "x=<" is the name of the argument that the first step reads. Brackets
/// of one kind are not nested. The views point into `text`.
std::vector<FunctionStep> parse_function(std::string_view text);

/// By op of a run: the step it is, or -1; such that most are one and few steps are left out. Ops that are no step and
/// steps that did not run (a branch not taken, a conversion to the same dtype) are passed over.
std::vector<std::int32_t> match_steps(const std::vector<FunctionStep>& steps, const std::vector<std::string_view>& ops);

/// Calls of the frame's own in one line of it that calls a known function, and which of its steps each is (-1: none).
struct FunctionRun {
  const std::vector<FunctionStep>* steps = nullptr;
  std::vector<std::int32_t> calls, step_at;
};

/// In the order of scopes.
std::vector<FunctionRun> runs_of_functions(const Tape& tape, const Frames& frames);

/// By value: the call with which the name goes that a known function held it by; -1: none did.
std::vector<std::int32_t> held_in_functions(const Tape& tape, const Frames& frames);

}  // namespace memplan
