// Gates: their rules, what they say of a rule or a target, and what a comparison says of a row. Documents carry the
// words, which are read and written here only.
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

/// What can be complained about. Names and codes are stable (docs/ci.md).
enum class GateRule : std::uint8_t {
  no_fit,
  tight,
  unknown,
  unknown_op,
  over_limit,
  near_limit,
  regression,
  increase,
  ratchet,
  error,  ///< nobody asks for it and nobody may ignore it
};
struct GateRuleRow {
  GateRule rule;
  const char* name;
  const char* code;
  const char* level;  ///< of services that know no other than a usual one
  const char* text;
  const char* next;  ///< what to do about it
};
inline constexpr std::array gate_rules{
    GateRuleRow{GateRule::no_fit, "no-fit", "MP101", "error", "The step does not fit the card.",
                "memplan suggest lists what to change, fastest first, with settings to paste."},
    GateRuleRow{
        GateRule::tight, "tight", "MP102", "warning",
        "The step fits, but not with the margin that is wanted, or only because the allocator empties its cache.",
        "It may run, slowly, and fail when another process uses the card. Lower --margin to accept it, or ask memplan "
        "suggest."},
    GateRuleRow{GateRule::unknown, "unknown", "MP103", "error",
                "Whether the step fits depends on something that is not modelled.",
                "memplan ops MODEL --unsupported names the ops. memplan.record in Python records the program, which "
                "leaves no op unknown."},
    GateRuleRow{GateRule::unknown_op, "unknown-op", "MP104", "error",
                "The model has ops that are not modelled, only bounded.",
                "The range is wider by what they may need. memplan ops MODEL --unsupported names them."},
    GateRuleRow{
        GateRule::over_limit, "over-limit", "MP110", "error", "The peak is over the limit of the target.",
        "The upper end of the range counts. Raise `limit` on purpose, or take the change that the gate proposes."},
    GateRuleRow{GateRule::near_limit, "near-limit", "MP111", "warning",
                "The peak is over the warning level of the target.",
                "The upper end of the range is over `warn`, and below `limit`."},
    GateRuleRow{GateRule::regression, "regression", "MP120", "error",
                "The peak grew by more than max_increase over the baseline.",
                "memplan diff says which part grew. Where the growth is meant, memplan baseline update keeps it."},
    GateRuleRow{GateRule::increase, "increase", "MP121", "warning",
                "The peak grew by more than warn_increase over the baseline.", "memplan diff says which part grew."},
    GateRuleRow{GateRule::ratchet, "ratchet", "MP122", "error",
                "The peak fell, and the baseline was not updated to keep it there.",
                "memplan baseline update writes the lower peak."},
    GateRuleRow{GateRule::error, "error", "MP190", "error", "The target could not be checked.",
                "The message says what stands in the way; a gate counts it as failed."},
};
constexpr const GateRuleRow& row_of(GateRule rule) { return gate_rules[static_cast<std::size_t>(rule)]; }
static_assert([] {
  for (std::size_t i = 0; i < gate_rules.size(); ++i)
    if (row_of(static_cast<GateRule>(i)).rule != static_cast<GateRule>(i)) return false;
  return gate_rules.size() == static_cast<std::size_t>(GateRule::error) + 1;
}());

/// The member "rule"; none where this memplan does not know the word.
std::optional<GateRule> rule_of(const Json& object);

/// What became of a part, a module or a tensor between two reports.
enum class DiffState : std::uint8_t {
  same,
  grew,
  shrank,
  fresh,
  gone,
  mixed,  ///< of rows that stand for several, which went different ways
};
inline constexpr std::array diff_state_names{
    Named<DiffState>{"same", DiffState::same},     Named<DiffState>{"grew", DiffState::grew},
    Named<DiffState>{"shrank", DiffState::shrank}, Named<DiffState>{"new", DiffState::fresh},
    Named<DiffState>{"gone", DiffState::gone},     Named<DiffState>{"changed", DiffState::mixed},
};
constexpr const char* name_of(DiffState state) { return name_in(diff_state_names, state); }

/// The member "state" of a comparison's row; `same` of rows of a report, which compare nothing.
DiffState diff_state_of(const Json& row);

/// "new" or "gone" of what is on one side only; empty otherwise.
constexpr const char* one_sided(DiffState state) {
  return state == DiffState::fresh || state == DiffState::gone ? name_of(state) : "";
}

}  // namespace memplan::cli
