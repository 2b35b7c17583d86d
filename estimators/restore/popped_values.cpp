#include "estimators/restore/popped_values.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

class PoppedValues {
 public:
  PoppedValues(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives)
      : tape_(tape), frames_(frames), lives_(lives), until_(lives.size(), -1) {}

  std::vector<std::int32_t> run() {
    for (std::size_t s = 0; s < tape_.scopes.size(); ++s) {
      const auto frame = static_cast<std::int32_t>(s);
      for (std::size_t i = 0; i < frames_.lines(frame); ++i)
        if (const std::size_t count = pops_of_caller(frame, frames_.line(frame, i)); count > 0)
          settle(frame, frames_.line(frame, i), count);
    }
    return std::move(until_);
  }

 private:
  const ValueLife& life(std::int32_t value) const { return lives_[static_cast<std::size_t>(value)]; }

  /// How many elements the line takes out of lists that the module got.
  std::size_t pops_of_caller(std::int32_t frame, const Line& line) const {
    const std::string_view call = tape_.scopes[static_cast<std::size_t>(frame)].source;
    return static_cast<std::size_t>(std::ranges::count_if(
        frames_.binding(line).pops, [&](const std::string& list) { return has_name(call, list); }));
  }

  /// The caller's line gives the module what names of its own, and none of a list that is popped, stand for.
  bool is_argument(std::int32_t frame, const ValueLife& l) const {
    const Scope& module = tape_.scopes[static_cast<std::size_t>(frame)];
    if (l.top != module.parent) return true;
    bool given = false;
    for (const auto& names : frames_.binding_at(l.top, l.born).targets)
      for (const std::string& name : names) {
        if (!has_name(module.source, name)) continue;
        if (frames_.is_emptied(l.top, name)) return false;
        given = true;
      }
    return given;
  }

  void settle(std::int32_t frame, const Line& line, std::size_t count) {
    std::set<std::int32_t> outside;  // values
    for (std::int32_t at = line.first; at <= line.last; ++at)
      for_each_value(tape_.calls[static_cast<std::size_t>(at)], [&](ValueId id) {
        const ValueLife& l = life(id.index);
        if (l.born >= 0 && l.born < frames_.begin(frame) && l.last <= line.last && !is_argument(frame, l))
          outside.insert(id.index);
      });
    std::vector<std::int32_t> oldest(outside.begin(), outside.end());
    std::ranges::sort(oldest, {}, [&](std::int32_t v) { return life(v).born; });
    oldest.resize(std::min(oldest.size(), count));
    for (std::int32_t at = line.first; at <= line.last; ++at)
      for_each_value(tape_.calls[static_cast<std::size_t>(at)], [&](ValueId id) {
        if (std::ranges::find(oldest, id.index) == oldest.end()) return;
        std::int32_t& until = until_[static_cast<std::size_t>(id.index)];
        until = std::max(until, frames_.settled(frame, tape_.calls[static_cast<std::size_t>(at)].scope, at));
      });
  }

  const Tape& tape_;
  const Frames& frames_;
  const std::vector<ValueLife>& lives_;
  std::vector<std::int32_t> until_;
};

}  // namespace

std::vector<std::int32_t> settled_where_popped(const Tape& tape, const Frames& frames,
                                               const std::vector<ValueLife>& lives) {
  return PoppedValues(tape, frames, lives).run();
}

}  // namespace memplan
