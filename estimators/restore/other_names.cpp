#include "estimators/restore/other_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// One frame's names while its lines are gone through in their order.
class FrameNames {
 public:
  FrameNames(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives,
             const std::vector<Statement>& statements, std::vector<std::int32_t>& until)
      : tape_(tape), frames_(frames), lives_(lives), statements_(statements), until_(until) {}

  void follow(std::int32_t frame) {
    for (std::size_t i = 0; i < frames_.lines(frame); ++i) {
      const Binding& binding = frames_.binding(frames_.line(frame, i));
      if (!binding.collects.empty()) lists_.insert(binding.collects);
      for (const auto& names : binding.targets) ever_bound_.insert(names.begin(), names.end());
    }
    for (std::size_t i = 0; i < frames_.lines(frame); ++i) {
      const Line& line = frames_.line(frame, i);
      if (line.binding >= 0) {
        read(frame, line);
        ran_[line.binding] = line.first;
      }
      for (const auto& names : frames_.binding(line).targets)
        for (const std::string& name : names) {
          bound_[name] = line.last;
          const auto it = others_.find(name);
          if (it == others_.end()) continue;
          hold(it->second, line.last);
          others_.erase(it);
        }
    }
    for (const auto& [name, value] : others_) hold(value, frames_.end(frame));
    hold_other_turns(frame);
  }

 private:
  void read(std::int32_t frame, const Line& line) {
    const Statement& statement = statements_[static_cast<std::size_t>(line.binding)];
    std::vector<std::string_view> unbound;
    for (const std::string_view name : names_read(statement.value, true))
      if (!bound_.contains(name) && !lists_.contains(name) && !frames_.is_emptied(frame, name) &&
          std::ranges::find(unbound, name) == unbound.end())
        unbound.push_back(name);
    std::vector<std::int32_t> unnamed;
    bool known = true;  // no operand is the frame's argument, which any name may be
    for (std::int32_t at = line.first; at <= line.last; ++at)
      for_each_value(tape_.calls[static_cast<std::size_t>(at)], [&](ValueId id) {
        const ValueLife& l = lives_[static_cast<std::size_t>(id.index)];
        if (l.born >= line.first || std::ranges::find(unnamed, id.index) != unnamed.end()) return;
        if (l.born < 0)
          known = known && tape_.values[static_cast<std::size_t>(id.index)].kind != ValueKind::user_input;
        else if (l.born < frames_.begin(frame) || l.top != frame)
          known = false;
        else if (!named(l, line, statement))
          unnamed.push_back(id.index);
      });
    if (!known) return;
    if (const auto lists = lists_read(statement.value, unbound); !lists.empty())
      return hold_members(frame, line, statement, lists);
    if (unnamed.size() != unbound.size()) return;
    for (std::size_t i = 0; i < unbound.size(); ++i) stands_for(frame, unbound[i], unnamed[i]);
  }

  /// "torch.cat([x, skips[-1 - i]], 1)": of the names that no visible line binds, the line takes parts of these, and
  /// the others say which. Empty where it reads others as well.
  std::set<std::string_view> lists_read(std::string_view text, const std::vector<std::string_view>& unbound) const {
    constexpr std::size_t longest = 4096;  // of a line that people write
    std::set<std::string_view> lists;
    if (text.size() > longest) return lists;
    for (const std::string_view name : unbound)
      for (auto at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
        if (!is_whole_name(text, at, name.size()) || is_in_subscript(text, at)) continue;
        if (!text.substr(at + name.size()).starts_with('[') || ever_bound_.contains(name)) return {};
        lists.insert(name);
      }
    return lists;
  }

  /// Whether the character stands between the brackets of "x[…]".
  static bool is_in_subscript(std::string_view text, std::size_t at) {
    int depth = 0;
    for (std::size_t i = at; i-- > 0;) {
      if (text[i] == ']') ++depth;
      if (text[i] == '[' && depth-- == 0 && i > 0 && (in_name(text[i - 1]) || text[i - 1] == ']')) return true;
      depth = std::max(depth, 0);
    }
    return false;
  }

  /// What the line reads and has no name for is in the list, which lives until the frame returns.
  void hold_members(std::int32_t frame, const Line& line, const Statement& statement,
                    const std::set<std::string_view>& lists) {
    std::vector<std::set<std::int32_t>*> last_of;  // lists of which the line takes the last member
    for (const std::string_view list : lists)
      if (statement.value.find(std::string(list) + "[-1]") != statement.value.npos) last_of.push_back(&members_[list]);
    for (std::int32_t at = line.first; at <= line.last; ++at)
      for_each_value(tape_.calls[static_cast<std::size_t>(at)], [&](ValueId id) {
        const ValueLife& l = lives_[static_cast<std::size_t>(id.index)];
        if (l.born < 0 || l.born >= line.first) return;
        const std::int32_t from = frames_.line(l.top, frames_.line_of(l.top, l.born)).binding;
        if (from < 0 || from == line.binding || read_by_name(l, statement)) return;
        hold(id.index, frames_.end(frame));
        for (std::set<std::int32_t>* members : last_of) members->insert(id.index);
      });
  }

  /// "states[-1]", or "states[0] + states[-1]", of what the turns of a loop, "x = layer(x)", have put into a list: it
  /// has what the others made as well.
  void hold_other_turns(std::int32_t frame) {
    std::set<Loop> loops;
    for (const auto& [list, members] : members_) {
      std::set<Loop> made_by;
      for (const std::int32_t member : members) {
        const ValueLife& l = lives_[static_cast<std::size_t>(member)];
        made_by.insert(l.top == frame ? loop_of(frame, l) : Loop{-1, -1});
      }
      if (made_by.size() == 1 && made_by.begin()->first >= 0) loops.merge(made_by);
    }
    for (const auto& [where, binding] : loops) {
      if (where != frame) hold_result(frame, frames_.begin(where));
      for (std::size_t i = 0; i < frames_.lines(where); ++i) {
        const Line& turn = frames_.line(where, i);
        for (std::int32_t at = turn.first; turn.binding == binding && at <= turn.last; ++at)
          for (const ValueId id : tape_.calls[static_cast<std::size_t>(at)].outputs)
            if (id.valid() && lives_[static_cast<std::size_t>(id.index)].top == where &&
                lives_[static_cast<std::size_t>(id.index)].last > turn.last)
              hold(id.index, frames_.end(frame));
      }
    }
  }

  /// "outputs = self.model(x)" of which a list was taken: a name has the whole object, and what the model ends with is
  /// in it even where nothing reads it.
  void hold_result(std::int32_t frame, std::int32_t call) {
    for (const ValueId id :
         tape_.calls[static_cast<std::size_t>(frames_.line(frame, frames_.line_of(frame, call)).last)].outputs)
      if (id.valid()) hold(id.index, frames_.end(frame));
  }

  using Loop = std::pair<std::int32_t, std::int32_t>;  ///< the frame that has it, and the binding of its line

  /// The loop whose turn made the value. It may be in a module that the frame's line calls: "outputs = self.model(x)"
  /// ahead of "self.head(outputs.hidden_states[-1])". A container runs its modules in a loop, too, and lists nothing.
  Loop loop_of(std::int32_t frame, const ValueLife& l) const {
    const std::int32_t scope = tape_.calls[static_cast<std::size_t>(l.born)].scope;
    for (; frame >= 0; frame = frames_.child_towards(frame, scope)) {
      if (tape_.scopes[static_cast<std::size_t>(frame)].module_class.starts_with("torch.nn.")) break;
      const std::int32_t binding = frames_.line(frame, frames_.line_of(frame, l.born)).binding;
      std::size_t turns = 0;
      for (std::size_t i = 0; i < frames_.lines(frame); ++i) turns += frames_.line(frame, i).binding == binding;
      if (binding >= 0 && turns > 1) return {frame, binding};
    }
    return {-1, -1};
  }

  void stands_for(std::int32_t frame, std::string_view name, std::int32_t value) {
    const auto [it, first] = others_.try_emplace(name, value);
    if (first || it->second == value) return;
    hold(it->second, frames_.line(frame, frames_.line_of(frame, lives_[static_cast<std::size_t>(value)].born)).last);
    it->second = value;
  }

  /// The line reads a name that the value's own line has bound, and no line since; or it is that line, in another turn,
  /// or one whose turn before this one could read the value. "x += 1" reads `x` as well.
  bool named(const ValueLife& l, const Line& line, const Statement& statement) const {
    const Line& made = frames_.line(l.top, frames_.line_of(l.top, l.born));
    if (made.binding == line.binding) return true;
    if (const auto before = ran_.find(line.binding); before != ran_.end() && before->second > l.born) return true;
    return read_by_name(l, statement);
  }

  bool read_by_name(const ValueLife& l, const Statement& statement) const {
    const Line& made = frames_.line(l.top, frames_.line_of(l.top, l.born));
    return std::ranges::any_of(frames_.binding(made).targets, [&](const auto& names) {
      return std::ranges::any_of(names, [&](const std::string& name) {
        const auto it = bound_.find(name);
        return it != bound_.end() && it->second == made.last &&
               (has_name(statement.value, name) ||
                (statement.augmented && !statement.targets.empty() && statement.targets[0][0] == name));
      });
    });
  }

  void hold(std::int32_t value, std::int32_t call) {
    std::int32_t& until = until_[static_cast<std::size_t>(value)];
    until = std::max(until, call);
  }

  const Tape& tape_;
  const Frames& frames_;
  const std::vector<ValueLife>& lives_;
  const std::vector<Statement>& statements_;  ///< by binding
  std::vector<std::int32_t>& until_;
  std::set<std::string_view> lists_;       ///< names of lists and dicts, which stand for no tensor
  std::set<std::string_view> ever_bound_;  ///< names that a line binds
  std::map<std::string_view, std::set<std::int32_t>>
      members_;                                      ///< by name of a list: its last member, as lines take it
  std::map<std::int32_t, std::int32_t> ran_;         ///< by binding: the first call of its line's last turn
  std::map<std::string_view, std::int32_t> bound_;   ///< by name: the last call of the line that bound it last
  std::map<std::string_view, std::int32_t> others_;  ///< by name that no visible line binds: its value
};

}  // namespace

std::vector<std::int32_t> held_by_other_names(const Tape& tape, const Frames& frames,
                                              const std::vector<Statement>& lines,
                                              const std::vector<ValueLife>& lives) {
  std::vector<std::int32_t> until(tape.values.size(), -1);
  for (std::size_t s = 0; s < tape.scopes.size(); ++s)
    FrameNames(tape, frames, lives, lines, until).follow(static_cast<std::int32_t>(s));
  return until;
}

}  // namespace memplan
