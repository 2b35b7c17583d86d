// The frames of a program, by module: which line made what, and until when its names hold it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/restore/statement.h"
#include "estimators/tape/tape.h"
#include "estimators/tape/uses.h"

namespace memplan {

/// Consecutive things that one line of a frame did: calls of its own, or modules that it called.
struct Line {
  std::int32_t first = 0, last = 0;  ///< tape calls
  std::int32_t binding = -1;
};

/// "self.ln(self.layers(x))": the line that calls the module does so by its own name, and not by a loop's or in a
/// helper.
inline bool names_itself(const Scope& module) {
  return module.source.find(fmt::format(".{}(", leaf_of(module.path))) != std::string::npos;
}

class Frames {
 public:
  explicit Frames(const Tape& tape) : tape_(tape), frames_(tape.scopes.size() + 1) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      std::int32_t scope = tape.calls[i].scope;
      add(scope, at, tape.calls[i].binding, -1);
      for (std::int32_t s = scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent)
        add(tape.scopes[static_cast<std::size_t>(s)].parent, at, tape.scopes[static_cast<std::size_t>(s)].binding, s);
    }
    depth_.resize(tape.scopes.size());
    for (std::size_t s = 0; s < tape.scopes.size(); ++s) {
      const std::int32_t p = tape.scopes[s].parent;
      depth_[s] = p < 0 ? 1 : depth_[static_cast<std::size_t>(p)] + 1;  // a parent is made before its children
    }
    follow_lists();
    for (std::size_t f = 0; f < frames_.size(); ++f) {
      if (frames_[f].lines.empty()) continue;
      split_turns(frames_[f], static_cast<std::int32_t>(f) - 1);
      follow_names(frames_[f]);
    }
  }

  std::int32_t parent(std::int32_t scope) const { return tape_.scopes[static_cast<std::size_t>(scope)].parent; }
  int depth(std::int32_t scope) const { return scope < 0 ? 0 : depth_[static_cast<std::size_t>(scope)]; }
  std::int32_t begin(std::int32_t scope) const {
    return frame(scope).lines.empty() ? -1 : frame(scope).lines.front().first;
  }
  std::int32_t end(std::int32_t scope) const {
    return frame(scope).lines.empty() ? -1 : frame(scope).lines.back().last;
  }

  std::int32_t common(std::int32_t a, std::int32_t b) const {
    while (depth(a) > depth(b)) a = parent(a);
    while (depth(b) > depth(a)) b = parent(b);
    while (a != b) a = parent(a), b = parent(b);
    return a;
  }

  /// The module through which `top`'s frame got into `scope`; -1 where it is that frame itself.
  std::int32_t child_towards(std::int32_t top, std::int32_t scope) const {
    std::int32_t child = -1;
    for (std::int32_t s = scope; s != top && s >= 0; s = parent(s)) child = s;
    return child;
  }

  /// The line of `top`'s own frame that call `at` is of.
  const std::string& source_at(std::int32_t top, std::int32_t at) const {
    const Call& call = tape_.calls[static_cast<std::size_t>(at)];
    const std::int32_t child = child_towards(top, call.scope);
    return child < 0 ? call.source : tape_.scopes[static_cast<std::size_t>(child)].source;
  }

  /// What the frame's own line says, without its place.
  std::string_view text(std::int32_t scope, const Line& line) const {
    const std::string_view source = source_at(scope, line.first);
    const auto blank = source.find(' ');
    return blank == source.npos ? std::string_view{} : source.substr(blank + 1);
  }

  /// The last call of what `top`'s frame was doing at call `at`, which happened in `scope`: an argument is held until
  /// the module that got it returns.
  std::int32_t settled(std::int32_t top, std::int32_t scope, std::int32_t at) const {
    const std::int32_t child = child_towards(top, scope);
    return child < 0 ? at : end(child);
  }

  /// Index of the line of `scope` that contains call `at`.
  std::size_t line_of(std::int32_t scope, std::int32_t at) const {
    const auto& lines = frame(scope).lines;
    const auto it =
        std::upper_bound(lines.begin(), lines.end(), at, [](std::int32_t n, const Line& l) { return n < l.first; });
    return static_cast<std::size_t>(it - lines.begin()) - 1;
  }
  std::size_t lines(std::int32_t scope) const { return frame(scope).lines.size(); }
  const Line& line(std::int32_t scope, std::size_t i) const { return frame(scope).lines[i]; }
  const Binding& binding(const Line& line) const {
    return line.binding < 0 ? no_names_ : tape_.bindings[static_cast<std::size_t>(line.binding)];
  }

  /// Where a name of `scope` is bound by the line of call `at` or the next one that binds it, or the end of the frame.
  std::int32_t bound_next(std::int32_t scope, std::int32_t at, std::string_view name) const {
    const auto& lines = frame(scope).lines;
    for (std::size_t i = line_of(scope, at); i < lines.size(); ++i)
      for (const auto& names : binding(lines[i]).targets)
        if (std::find(names.begin(), names.end(), name) != names.end()) return lines[i].last;
    return end(scope);
  }

  /// Until when a list or a dict has the value that line `i` puts into it: until another one takes its place, its name
  /// is bound again, or the end of the frame. -1: the line puts nothing into one, or a line of the frame takes it out
  /// again.
  std::int32_t collected(std::int32_t scope, std::size_t i, ValueId value) const {
    const auto& lines = frame(scope).lines;
    const std::string& name = binding(lines[i]).collects;
    if (name.empty() || is_emptied(scope, name)) return -1;
    const std::int32_t end = replaced(scope, i, value);
    return end < 0 ? bound_next(scope, lines[i].last, name) : end;
  }

  /// The end of the last line, from line `i` on, before those up to line `j` mention the name.
  std::int32_t before_mention(std::int32_t scope, std::size_t i, std::size_t j, std::string_view name) const {
    const auto& lines = frame(scope).lines;
    std::size_t next = i + 1;
    while (next < j && !has_name(text(scope, lines[next]), name)) ++next;
    return lines[next - 1].last;
  }

  /// Whether a line after line `i` binds the name.
  bool binds_later(std::int32_t scope, std::size_t i, std::string_view name) const {
    const auto& lines = frame(scope).lines;
    return std::any_of(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, lines.end(), [&](const Line& l) {
      return std::any_of(binding(l).targets.begin(), binding(l).targets.end(),
                         [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); });
    });
  }

  /// Elements of the list that the name holds are taken out somewhere in the frame, or in a module that gets it.
  bool is_emptied(std::int32_t scope, std::string_view name) const { return frame(scope).emptied.contains(name); }

  /// Of the line of `scope` that contains call `at`.
  const Binding& binding_at(std::int32_t scope, std::int32_t at) const {
    return binding(line(scope, line_of(scope, at)));
  }

  /// Where the names that line `i` binds to its `k`-th result are all bound again, or the end of the frame; -1 when the
  /// line binds no name.
  std::int32_t rebound(std::int32_t scope, std::size_t i, std::size_t k) const {
    const Frame& f = frame(scope);
    const auto& until = f.rebound[i];
    return until.empty() ? -1 : until[std::min(k, until.size() - 1)];
  }

 private:
  struct Frame {
    std::vector<Line> lines;
    std::vector<std::vector<std::int32_t>> rebound;  ///< per line and position among its targets
    std::int32_t last_child = -1;
    /// Names of lists that give elements away, here or in a module that gets them.
    std::set<std::string, std::less<>> emptied;
  };

  /// Where "x[i] = x[i].contiguous()" puts another tensor in the place of `value`, which line `i` had put there; -1:
  /// nowhere that is seen. A place with a number, "x[-1] = f(x[-1])", that does not have the value any more is one of
  /// another list: a line without an op, "x = [y[k] for k in keys]", has bound the name in between.
  std::int32_t replaced(std::int32_t scope, std::size_t i, ValueId value) const {
    const auto& lines = frame(scope).lines;
    const std::string& name = binding(lines[i]).collects;
    for (std::size_t j = i + 1; j < std::min(lines.size(), i + 64); ++j) {  // a loop's turn is no longer
      if (binding(lines[j]).collects != name) continue;
      const std::string_view line = text(scope, lines[j]), place = line.substr(0, line.find(']') + 1);
      if (place.empty() || line.find(place, place.size()) == line.npos) continue;
      if (std::any_of(tape_.calls.begin() + lines[j].first, tape_.calls.begin() + lines[j].last + 1,
                      [&](const Call& c) { return reads_value(c, value); }))
        return lines[j].last;
      const std::string_view key = place.substr(name.size());
      if (place == text(scope, lines[i]).substr(0, place.size()) && key.find_first_not_of("[]-0123456789") == key.npos)
        return before_mention(scope, i, j, name);
    }
    return -1;
  }

  Frame& frame(std::int32_t scope) { return frames_[static_cast<std::size_t>(scope) + 1]; }
  const Frame& frame(std::int32_t scope) const { return frames_[static_cast<std::size_t>(scope) + 1]; }

  void add(std::int32_t scope, std::int32_t at, std::int32_t binding, std::int32_t child) {
    Frame& f = frame(scope);
    // A line that runs again in a loop joins its last run: what each turn hands to the next is used there anyway.
    const bool again = binding >= 0 && !f.lines.empty() && f.lines.back().binding == binding;
    const bool same_child = child >= 0 && !f.lines.empty() && f.last_child == child;
    if (again || same_child)
      f.lines.back().last = at;
    else
      f.lines.push_back({at, at, binding});
    f.last_child = child;
  }

  /// A loop runs its line several times in a row. Where what the line does is periodic, each period is one turn, and
  /// its names are bound anew in every turn. (`a, b = f(a), f(b)` is periodic as well and stays one line, as does
  /// `x = [f(i) for i in x]`, whose name holds one list.)
  void split_turns(Frame& f, std::int32_t scope) const {
    std::vector<Line> lines;
    for (const Line& line : f.lines) {
      const Binding& s = binding(line);
      const bool binds = (!s.targets.empty() || !s.collects.empty()) && !s.makes_list;
      const bool one_name =
          binds && std::all_of(s.targets.begin(), s.targets.end(), [](const auto& names) { return names.size() == 1; });
      const bool one_module = binds && calls_one_module(scope, line);  // "x, _ = layer(x)" as well
      const std::size_t period = one_module ? 1 : one_name ? period_of(scope, line) : 0;
      if (period == 0) {
        lines.push_back(line);
        continue;
      }
      const std::vector<Item> items = items_of(scope, line);
      for (std::size_t i = 0; i < items.size(); i += period)
        lines.push_back({items[i].first, items[i + period - 1].last, line.binding});
    }
    f.lines = std::move(lines);
  }

  struct Item {
    std::int32_t first, last;
    std::string_view what;    ///< op or module class
    std::int32_t child = -1;  ///< the module; -1: a call of the frame's own
  };

  /// What a line did: calls of the frame's own and modules called.
  std::vector<Item> items_of(std::int32_t scope, const Line& line) const {
    std::vector<Item> items;
    std::int32_t child_before = -1;
    for (std::int32_t at = line.first; at <= line.last; ++at) {
      const Call& call = tape_.calls[static_cast<std::size_t>(at)];
      std::int32_t child = -1, s = call.scope;
      for (; s != scope && s >= 0; s = parent(s)) child = s;
      if (s != scope) continue;  // a damaged file may leave a module and come back to the same line of it
      if (child >= 0 && child == child_before && !items.empty())
        items.back().last = at;
      else
        items.push_back({at, at,
                         child < 0 ? std::string_view(call.op)
                                   : std::string_view(tape_.scopes[static_cast<std::size_t>(child)].module_class),
                         child});
      child_before = child;
    }
    return items;
  }

  /// A line such as nn.Sequential's "input = module(input)" that only modules answered: one module per turn, whatever
  /// their order looks like.
  bool calls_one_module(std::int32_t scope, const Line& line) const {
    if (!binding(line).calls_local) return false;
    for (std::int32_t at = line.first; at <= line.last; ++at)
      if (tape_.calls[static_cast<std::size_t>(at)].scope == scope) return false;
    return true;
  }

  /// Items per turn, or 0 for a line that ran once. `x = self.layer2(self.layer1(x))` calls both in each turn.
  std::size_t period_of(std::int32_t scope, const Line& line) const {
    const std::vector<Item> items = items_of(scope, line);
    std::set<std::string_view> named;
    std::size_t least = 1;  // items up to the last module that the line names
    for (std::size_t i = 0; i < items.size(); ++i)
      if (items[i].child >= 0 && names_itself(tape_.scopes[static_cast<std::size_t>(items[i].child)]) &&
          named.insert(tape_.scopes[static_cast<std::size_t>(items[i].child)].path).second)
        least = i + 1;
    for (std::size_t p = least; p <= items.size() / 2; ++p) {
      if (items.size() % p != 0) continue;
      bool repeats = true;
      for (std::size_t i = p; repeats && i < items.size(); ++i) repeats = items[i].what == items[i - p].what;
      if (repeats) return p;
    }
    return 0;
  }

  /// Of `x = self.up(x, skips)` whose module does `skips.pop()` the list is the caller's as well.
  void follow_lists() {
    for (std::size_t f = 0; f < frames_.size(); ++f)
      for (const Line& line : frames_[f].lines)
        for (const std::string& name : binding(line).pops) {
          frames_[f].emptied.insert(name);
          if (f == 0) continue;
          const Scope& module = tape_.scopes[f - 1];
          if (has_name(module.source, name)) frame(module.parent).emptied.insert(name);
        }
  }

  void follow_names(Frame& f) const {
    const std::int32_t end = f.lines.back().last;
    f.rebound.resize(f.lines.size());
    std::unordered_map<std::string_view, std::int32_t> next;  // where a name is bound next
    for (std::size_t i = f.lines.size(); i-- > 0;) {
      const Binding& s = binding(f.lines[i]);
      std::size_t width = 0;
      for (const auto& names : s.targets) width = std::max(width, names.size());
      f.rebound[i].assign(width, -1);
      for (const auto& names : s.targets)
        for (std::size_t k = 0; k < width; ++k) {
          if (s.makes_list && f.emptied.contains(names[0])) continue;
          const auto it = next.find(names[names.size() == 1 ? 0 : std::min(k, names.size() - 1)]);
          // An attribute outlives the frame; nobody can see how long, so the frame's end stands for it.
          f.rebound[i][k] = std::max(f.rebound[i][k], it == next.end() ? end : it->second);
        }
      for (const auto& names : s.targets)
        for (const std::string& name : names) next[name] = f.lines[i].last;
    }
  }

  const Tape& tape_;
  const Binding no_names_{};
  std::vector<Frame> frames_;  ///< [0] is the program outside of all modules
  std::vector<int> depth_;
};

}  // namespace memplan
