#include "estimators/restore/returned_lists.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "estimators/restore/statement.h"

namespace memplan {

namespace {

/// A call of a module or a helper whose result one name holds.
struct Invocation {
  std::int32_t first = 0, last = 0;  ///< tape calls
  std::int32_t end = 0;              ///< the last call of its line
  std::int32_t until = 0;            ///< where the name is bound again
};

/// Without "# what it is for" at its end; a line with a string is left alone.
std::string_view without_comment(std::string_view text) {
  const auto comment = text.find_first_of("#\"'");
  if (comment == text.npos || text[comment] != '#') return text;
  return text.substr(0, text.find_last_not_of(" \t", comment == 0 ? 0 : comment - 1) + 1);
}

/// "self.vgg" of "self.vgg(x)"; empty where the text is more or less than one call.
std::string_view callee_of(std::string_view text) {
  const auto open = text.find('(');
  if (open == text.npos || open == 0 || !std::ranges::all_of(text.substr(0, open), in_path)) return {};
  const auto close = closing_bracket(text, open);
  return close + 1 == text.size() ? text.substr(0, open) : std::string_view{};
}

/// What a statement calls once for each of its names, and does nothing else with; empty for all others.
std::string_view callee_of(const Statement& line) {
  if (line.targets.size() != 1) return {};
  const std::vector<std::string_view> parts = arguments_at(without_comment(line.value), 0);
  const std::string_view callee = callee_of(parts[0]);
  const bool alike = std::ranges::all_of(parts, [&](std::string_view p) { return callee_of(p) == callee; });
  return alike && parts.size() == line.targets[0].size() ? callee : std::string_view();
}

/// Result `second` of the call that is `first` calls after the beginning.
using Member = std::pair<std::int32_t, std::size_t>;

class ReturnedLists {
 public:
  ReturnedLists(const Tape& tape, const Frames& frames, const std::vector<Statement>& lines,
                const std::vector<std::int32_t>& settled)
      : tape_(tape), frames_(frames), settled_(settled) {
    for (const Statement& line : lines) callees_.push_back(callee_of(line));
  }

  std::vector<std::int32_t> run() {
    for (std::int32_t frame = 0; frame < static_cast<std::int32_t>(tape_.scopes.size()); ++frame)
      for (std::size_t i = 0; i < frames_.lines(frame); ++i) look(frame, i);
    std::vector<std::int32_t> until(tape_.values.size(), -1);
    for (const auto& [of, calls] : invocations_) {
      std::set<Member> returned;
      for (const Invocation& c : calls)
        each_value(c, [&](Member member, std::size_t value) {
          if (settled_[value] > c.end) returned.insert(member);
        });
      if (returned.size() < 2) continue;
      for (const Invocation& c : calls)
        each_value(c, [&](Member member, std::size_t value) {
          if (returned.contains(member)) until[value] = std::max(until[value], c.until);
        });
    }
    return until;
  }

 private:
  template <class Use>
  void each_value(const Invocation& c, const Use& use) const {
    for (std::int32_t i = c.first; i <= c.last; ++i) {
      const auto& outputs = tape_.calls[static_cast<std::size_t>(i)].outputs;
      for (std::size_t k = 0; k < outputs.size(); ++k)
        if (outputs[k].valid()) use({i - c.first, k}, static_cast<std::size_t>(outputs[k].index));
    }
  }

  /// `a = f(x)`, and `a, b = f(x), f(y)`: a call for each name.
  void look(std::int32_t frame, std::size_t i) {
    const Line& line = frames_.line(frame, i);
    const std::string_view callee =
        line.binding < 0 ? std::string_view() : callees_[static_cast<std::size_t>(line.binding)];
    // An autograd.Function stands for several lines: the text is that of the first, the names are those of the last.
    const auto& targets = frames_.binding(line).targets;
    if (callee.empty() || targets.size() != 1) return;
    if (std::ranges::any_of(targets[0], [&](const std::string& name) { return frames_.is_emptied(frame, name); }))
      return;
    const std::size_t names = targets[0].size();
    const std::vector<std::int32_t> modules = called_as(frame, line, callee);
    const std::int32_t count = line.last - line.first + 1, size = static_cast<std::int32_t>(names);
    if (modules.empty() ? count % size != 0 : modules.size() != names) return;
    for (std::int32_t k = 0; k < size; ++k) {
      Invocation c{line.first + k * (count / size), line.first + (k + 1) * (count / size) - 1, line.last,
                   frames_.rebound(frame, i, static_cast<std::size_t>(k))};
      std::string of = tape_.scopes[static_cast<std::size_t>(frame)].path + ":" + std::string(callee);
      if (!modules.empty()) {
        const std::int32_t module = modules[static_cast<std::size_t>(k)];
        c.first = frames_.begin(module), c.last = frames_.end(module);
        of = tape_.scopes[static_cast<std::size_t>(module)].path;
      }
      invocations_[{std::move(of), c.last - c.first}].push_back(c);
    }
  }

  /// Modules of the line that its text calls by this name, in order.
  std::vector<std::int32_t> called_as(std::int32_t frame, const Line& line, std::string_view callee) const {
    std::vector<std::int32_t> found;
    const std::string leaf = "." + std::string(callee.substr(callee.rfind('.') + 1));
    for (std::int32_t i = line.first; i <= line.last; ++i) {
      const std::int32_t child = frames_.child_towards(frame, tape_.calls[static_cast<std::size_t>(i)].scope);
      if (child < 0 || (!found.empty() && found.back() == child)) continue;
      if (("." + tape_.scopes[static_cast<std::size_t>(child)].path).ends_with(leaf)) found.push_back(child);
    }
    return found;
  }

  const Tape& tape_;
  const Frames& frames_;
  const std::vector<std::int32_t>& settled_;
  std::vector<std::string_view> callees_;  ///< by binding
  /// By what is called, and how many calls it takes.
  std::map<std::pair<std::string, std::int32_t>, std::vector<Invocation>> invocations_;
};

}  // namespace

std::vector<std::int32_t> held_in_returned_lists(const Tape& tape, const Frames& frames,
                                                 const std::vector<Statement>& lines,
                                                 const std::vector<std::int32_t>& settled) {
  return ReturnedLists(tape, frames, lines, settled).run();
}

}  // namespace memplan
