#include "estimators/restore/loop_names.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

using Numbers = std::vector<std::int32_t>;

/// By module: results of calls outside of it that it reads, in the order in which it reads them first.
std::vector<Numbers> given_to(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives) {
  constexpr std::size_t most_arguments = 16;
  std::vector<Numbers> given(tape.scopes.size());
  for (const Call& call : tape.calls)
    for_each_value(call, [&](ValueId id) {
      const std::int32_t made = lives[static_cast<std::size_t>(id.index)].born;
      for (std::int32_t s = call.scope; made >= 0 && s >= 0 && made < frames.begin(s); s = frames.parent(s)) {
        Numbers& mine = given[static_cast<std::size_t>(s)];
        if (mine.size() < most_arguments && std::ranges::find(mine, id.index) == mine.end()) mine.push_back(id.index);
      }
    });
  return given;
}

/// "x = self.forward_head(x)": modules of a method of the frame's own, whose line holds its arguments to its end.
bool calls_method(const Scope& module) {
  const std::string_view value = parse_statement(module.source).value;
  const auto open = value.find('(');
  return value.starts_with("self.") && open != value.npos && std::ranges::all_of(value.substr(0, open), in_path);
}

/// Lines of a module, or of modules in it, or the line that calls it, have the name, as of an argument.
bool speaks_of(const Tape& tape, const Frames& frames, std::int32_t module, std::string_view name) {
  if (has_name(parse_statement(tape.scopes[static_cast<std::size_t>(module)].source).value, name)) return true;
  for (std::int32_t i = frames.begin(module); i >= 0 && i <= frames.end(module); ++i) {
    const Call& call = tape.calls[static_cast<std::size_t>(i)];
    if (has_name(call.source, name)) return true;
    for (std::int32_t s = call.scope; s >= 0 && s != module; s = frames.parent(s))
      if (has_name(tape.scopes[static_cast<std::size_t>(s)].source, name)) return true;
  }
  return false;
}

/// The line that made the value calls it as module `turn` does.
bool named_alike(const Tape& tape, const Frames& frames, const ValueLife& value, std::int32_t turn) {
  const Line& line = frames.line(value.top, frames.line_of(value.top, value.born));
  return std::ranges::any_of(frames.binding(line).targets, [&](const auto& names) {
    return std::ranges::any_of(names, [&](const auto& name) { return speaks_of(tape, frames, turn, name); });
  });
}

}  // namespace

std::vector<std::int32_t> let_go_in_loops(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives) {
  const std::vector<Numbers> given = given_to(tape, frames, lives);
  Numbers until(tape.values.size(), -1);
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> turn_before;  // by frame and line
  for (std::size_t s = 0; s < tape.scopes.size(); ++s) {
    const Scope& scope = tape.scopes[s];
    if (scope.binding < 0 || given[s].empty() || names_itself(scope) || calls_method(scope)) continue;
    const auto [it, first] = turn_before.try_emplace({scope.parent, scope.binding}, s);
    if (first) continue;
    const auto before = static_cast<std::int32_t>(std::exchange(it->second, s));
    const Numbers &mine = given[s], &theirs = given[static_cast<std::size_t>(before)];
    for (std::size_t k = 0; k < std::min(mine.size(), theirs.size()); ++k) {
      const ValueLife& value = lives[static_cast<std::size_t>(theirs[k])];
      const std::int32_t made = lives[static_cast<std::size_t>(mine[k])].born;
      const bool result = made >= frames.begin(before) && made <= frames.end(before);
      if (result && value.top == scope.parent && std::ranges::find(mine, theirs[k]) == mine.end() &&
          named_alike(tape, frames, value, before))
        until[static_cast<std::size_t>(theirs[k])] = frames.end(before);
    }
  }
  return until;
}

std::vector<std::int32_t> held_by_lists_of_loops(const Tape& tape, const Frames& frames,
                                                 const std::vector<ValueLife>& lives) {
  Numbers until(tape.values.size(), -1);
  std::map<std::pair<std::int32_t, std::int32_t>, Numbers> turns;  // by frame and binding: lines that are turns
  const auto turn_of = [&](std::int32_t frame, std::int32_t binding, std::int32_t at) {
    const auto [it, fresh] = turns.try_emplace({frame, binding});
    for (std::size_t i = 0; fresh && i < frames.lines(frame); ++i)
      if (frames.line(frame, i).binding == binding) it->second.push_back(static_cast<std::int32_t>(i));
    const auto line = static_cast<std::int32_t>(frames.line_of(frame, at));
    return std::ranges::lower_bound(it->second, line) - it->second.begin();
  };
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for_each_value(tape.calls[i], [&](ValueId id) {
      const ValueLife& l = lives[static_cast<std::size_t>(id.index)];
      const auto at = static_cast<std::int32_t>(i);
      if (l.born < 0 || until[static_cast<std::size_t>(id.index)] >= 0) return;
      const Line &made = frames.line(l.top, frames.line_of(l.top, l.born)),
                 &read = frames.line(l.top, frames.line_of(l.top, at));
      if (made.binding < 0 || made.binding != read.binding || !frames.binding(made).calls_local) return;
      if (turn_of(l.top, made.binding, at) - turn_of(l.top, made.binding, l.born) > 1)
        until[static_cast<std::size_t>(id.index)] = frames.end(l.top);
    });
  return until;
}

}  // namespace memplan
