#include "estimators/restore/joined_lists.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "estimators/facts/libraries.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "outputs" of "torch.stack(outputs, dim=1)" or "torch.cat(outputs[::-1])": a name of the frame that holds a list.
/// Empty for lists that are written there, and for what is no plain name.
std::string_view joined_list(const Call& call) {
  if (call.op != "aten::cat" && call.op != "aten::stack") return {};
  const std::string_view source = call.source;
  for (const std::string_view f : {"cat(", "stack(", "concat("})
    if (const auto open = source.find(f); open != source.npos) {
      const auto first = source.find_first_not_of(' ', open + f.size());
      const auto end = first == source.npos ? first : source.find_first_of("[,) ", first);
      if (end == source.npos || end == first) return {};
      const std::string_view name = source.substr(first, end - first);
      return std::ranges::all_of(name, in_name) && std::isdigit(static_cast<unsigned char>(name.front())) == 0
                 ? name
                 : std::string_view{};
    }
  return {};
}

}  // namespace

std::vector<std::int32_t> held_in_joined_lists(const Tape& tape, const Frames& frames) {
  std::vector<std::int32_t> until(tape.values.size(), -1);
  std::map<std::pair<std::int32_t, std::string_view>, std::int32_t> next;  // where a list of the name is joined next
  for (std::size_t i = tape.calls.size(); i-- > 0;) {
    const Call& call = tape.calls[i];
    const std::string_view name = joined_list(call);
    if (name.empty()) continue;
    const auto at = static_cast<std::int32_t>(i);
    const bool handed_in =
        call.scope >= 0 &&
        fact_of_class("appends_to_argument", tape.scopes[static_cast<std::size_t>(call.scope)].module_class) != nullptr;
    const std::int32_t bound =
        handed_in ? frames.end(frames.parent(call.scope)) : frames.bound_next(call.scope, at, name);
    const auto known = next.find({call.scope, name});
    for_each_value(call, [&](ValueId id) {
      std::int32_t end = bound;
      if (!handed_in && known != next.end() && !reads_value(tape.calls[static_cast<std::size_t>(known->second)], id))
        end = std::min(end, frames.before_mention(call.scope, frames.line_of(call.scope, at),
                                                  frames.line_of(call.scope, known->second), name));
      auto& held = until[static_cast<std::size_t>(id.index)];
      held = std::max(held, end);
    });
    next[{call.scope, name}] = at;
  }
  return until;
}

}  // namespace memplan
