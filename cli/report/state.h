// What a gate says of a rule or a target. Documents carry the words, which are read and written here only.
#pragma once

#include <cstdint>

#include "cli/report/formats.h"
#include "estimators/base/names.h"
#include "estimators/estimate/estimate.h"

namespace memplan::cli {

enum class GateState : std::uint8_t {
  passed,
  warned,
  failed,
  ignored,  ///< the configuration says why, and until when
  fresh,    ///< the baseline does not know the target yet
  error,    ///< the target could not be estimated
};
inline constexpr std::array gate_state_names{
    Named<GateState>{"passed", GateState::passed}, Named<GateState>{"warned", GateState::warned},
    Named<GateState>{"failed", GateState::failed}, Named<GateState>{"ignored", GateState::ignored},
    Named<GateState>{"new", GateState::fresh},     Named<GateState>{"error", GateState::error},
};
constexpr const char* name_of(GateState state) { return name_in(gate_state_names, state); }

/// The member "status" of a rule, a target or a summary. A word that this memplan does not know is an error.
GateState state_of(const Json& object);

/// The condition of the rule is met, and nobody ignores it.
constexpr bool complains(GateState state) { return state == GateState::failed || state == GateState::warned; }

/// The member "verdict"; none where no card was given.
std::optional<Verdict> verdict_of(const Json& summary);

}  // namespace memplan::cli
