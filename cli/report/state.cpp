#include "cli/report/state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/words.h"

namespace memplan::cli {

GateState state_of(const Json& object) {
  return value_in(gate_state_names, text_of(object, "status")).value_or(GateState::error);
}

std::optional<GateRule> rule_of(const Json& object) {
  const std::string name = text_of(object, "rule");
  const auto row =
      std::find_if(gate_rules.begin(), gate_rules.end(), [&](const GateRuleRow& r) { return r.name == name; });
  return row == gate_rules.end() ? std::nullopt : std::optional(row->rule);
}

DiffState diff_state_of(const Json& row) {
  const std::string word = row.value("state", name_of(DiffState::same));
  return value_in(diff_state_names, word).value_or(DiffState::mixed);
}

std::optional<Verdict> verdict_of(const Json& summary) {
  if (summary.at("verdict").is_null()) return std::nullopt;
  return value_in(verdict_names, text_of(summary, "verdict")).value_or(Verdict::unknown);
}

}  // namespace memplan::cli
