#include "estimators/restore/caller_argument.h"

#include <algorithm>
#include <string_view>

#include "estimators/restore/statement.h"

namespace memplan {

ValueId first_argument(const Tape& tape, const Scope& module) {
  const std::string_view line = parse_statement(module.source).value;
  const auto open = line.find('(');
  if (open == line.npos) return {};
  const auto end = line.find_first_of(",)", open);
  const std::string_view name = end == line.npos ? std::string_view{} : line.substr(open + 1, end - open - 1);
  if (name.empty() || !std::ranges::all_of(name, in_name)) return {};
  const auto binds = [&](std::int32_t binding) {
    if (binding < 0) return false;
    const auto& targets = tape.bindings[static_cast<std::size_t>(binding)].targets;
    return std::ranges::any_of(targets, [&](const auto& names) { return names.size() == 1 && names[0] == name; });
  };
  for (auto call = tape.calls.rbegin(); call != tape.calls.rend(); ++call) {
    if (call->outputs.empty()) continue;
    std::int32_t s = call->scope, binding = call->binding;
    for (; s >= 0 && s != module.parent; s = tape.scopes[static_cast<std::size_t>(s)].parent)
      binding = tape.scopes[static_cast<std::size_t>(s)].binding;
    if (s == module.parent && binds(binding)) return call->outputs[0];
  }
  return {};
}

}  // namespace memplan
