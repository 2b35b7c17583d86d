#include "cli/report/state.h"

#include <nlohmann/json.hpp>

#include "cli/report/words.h"

namespace memplan::cli {

GateState state_of(const Json& object) {
  return value_in(gate_state_names, text_of(object, "status")).value_or(GateState::error);
}

std::optional<Verdict> verdict_of(const Json& summary) {
  if (summary.at("verdict").is_null()) return std::nullopt;
  return value_in(verdict_names, text_of(summary, "verdict")).value_or(Verdict::unknown);
}

}  // namespace memplan::cli
