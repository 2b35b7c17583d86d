#include "estimators/restore/method_states.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "estimators/restore/lifetimes.h"
#include "estimators/restore/statement.h"

namespace memplan {

namespace {

/// The method that a statement of its own calls, "reset" of "self.reset(x)" or of its first line "self.reset("; else
/// empty.
std::string_view method_called(std::string_view source) {
  constexpr std::string_view self = "self.";
  const std::string_view text = placed_line(source).text;
  const auto open = text.find('(');
  if (!text.starts_with(self) || open == text.npos) return {};
  const std::string_view name = text.substr(self.size(), open - self.size());
  const bool whole = text.ends_with('(') || closing_bracket(text, open) == text.size() - 1;
  return whole && std::ranges::all_of(name, in_name) ? name : std::string_view{};
}

/// Whether the frame's module has a child of that name, whose call makes a result instead.
bool is_child(const Tape& tape, std::int32_t scope, std::string_view name) {
  return std::ranges::any_of(tape.scopes, [&](const Scope& s) { return s.parent == scope && leaf_of(s.path) == name; });
}

/// Whether the statement at line `at` of the frame keeps what it makes in attributes.
bool keeps_state(const Tape& tape, const Frames& frames, std::int32_t scope, std::size_t at) {
  const Line& line = frames.line(scope, at);
  if (!frames.binding(line).targets.empty() || at + 1 >= frames.lines(scope)) return false;
  const std::string& source = frames.source_at(scope, line.first);
  const std::string_view name = method_called(source);
  if (name.empty() || is_child(tape, scope, name)) return false;
  const PlacedLine here = placed_line(source),
                   next = placed_line(frames.source_at(scope, frames.line(scope, at + 1).first));
  return next.number > here.number && next.file == here.file;
}

}  // namespace

std::vector<bool> states_of_methods(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives) {
  std::vector<bool> states(lives.size(), false);
  if (tape.exported.recorded) return states;  // it tells when each goes
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const ValueLife& l = lives[v];
    if (l.born < 0 || l.top < 0) continue;
    const std::size_t at = frames.line_of(l.top, l.born);
    states[v] = l.last > frames.line(l.top, at).last && keeps_state(tape, frames, l.top, at);
  }
  return states;
}

Bytes bytes_of_method_states(const Tape& tape) {
  if (tape.exported.recorded) return {};
  const auto calls_method = [](const auto& user) { return !method_called(user.source).empty(); };
  if (std::ranges::none_of(tape.calls, calls_method) && std::ranges::none_of(tape.scopes, calls_method)) return {};
  const Frames frames(tape);
  const std::vector<ValueLife> lives = lives_of(tape, frames);
  std::vector<bool> held = states_of_methods(tape, frames, lives);
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for_each_value(tape.calls[i], [&](ValueId id) {
      const ValueLife& l = lives[static_cast<std::size_t>(id.index)];
      if (l.born < 0 || l.top < 0) return;
      const std::size_t at = frames.line_of(l.top, static_cast<std::int32_t>(i));
      if (l.last > frames.line(l.top, at).last && keeps_state(tape, frames, l.top, at))
        held[static_cast<std::size_t>(id.index)] = true;
    });
  Bytes all;
  for (const Call& call : tape.calls)
    for (std::size_t o = 0; o < std::min(call.outputs.size(), call.known_shapes.size()); ++o)
      if (const ValueId id = call.outputs[o]; id.valid() && held[static_cast<std::size_t>(id.index)])
        all += bytes_of(call.known_shapes[o].first, call.known_shapes[o].second);
  return all;
}

}  // namespace memplan
