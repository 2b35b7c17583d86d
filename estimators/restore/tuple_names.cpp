#include "estimators/restore/tuple_names.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// `x.sort(dim=1)[0]`: the tuple goes with the element that nobody takes. Not of the call with which a line of several
/// targets ends, `_, i = x.topk(4)[0].mean(-1).topk(2)`: it gives them all. `last`: that is the call.
bool takes_one_element(const Call& call, bool last, const std::vector<std::vector<std::string>>& targets) {
  const std::string_view source = call.source;
  if (call.outputs.size() < 2) return false;
  const bool several = last && !targets.empty() && targets[0].size() > 1;
  if (several && !source.substr(0, source.find("  #")).ends_with(']')) return false;
  for (auto at = source.find(")["); at != source.npos; at = source.find(")[", at + 1)) {
    const auto digit = at + 2 + (source.substr(at + 2).starts_with('-') ? 1 : 0);
    const auto end = source.find_first_not_of("0123456789", digit);
    if (end != source.npos && end > digit && source[end] == ']') return true;
  }
  return false;
}

/// Whether a value has a name of its line. One that the line made and used up was a temporary.
bool is_named(const Tape& tape, const Frames& frames, const ValueLife& l, std::int32_t settled) {
  const Line& line = frames.line(l.top, frames.line_of(l.top, l.born));
  if (l.kept || settled > line.last) return true;
  const auto& targets = frames.binding(line).targets;
  const Call& made_by = tape.calls[static_cast<std::size_t>(l.born)];
  // What a dict has and nobody reads is a mask that is made while the program is traced only.
  if (!targets.empty() && is_dict_key(targets[0][0])) return false;
  if (settled == l.born && takes_one_element(made_by, l.born == line.last, targets)) return false;
  return frames.settled(l.top, made_by.scope, l.born) == line.last;
}

using NamedLine = std::pair<std::int32_t, std::size_t>;  ///< frame, and a line of it

/// Places of names that a value may have.
using Candidates = std::vector<bool>;

class TupleNames {
 public:
  TupleNames(const Tape& tape, const Frames& frames, const std::vector<Statement>& lines,
             const std::vector<ValueLife>& lives)
      : tape_(tape), frames_(frames), lines_(lines), lives_(lives) {}

  std::vector<std::int32_t> run(const std::vector<std::int32_t>& settled) {
    std::vector<std::int32_t> place(lives_.size(), -1);
    std::map<NamedLine, std::vector<std::size_t>> results;
    for (std::size_t v = 0; v < lives_.size(); ++v) {
      const ValueLife& l = lives_[v];
      if (l.born < 0 || !is_named(tape_, frames_, l, settled[v])) continue;
      auto& of_line = results[{l.top, frames_.line_of(l.top, l.born)}];
      place[v] = static_cast<std::int32_t>(of_line.size());
      of_line.push_back(v);
    }
    std::erase_if(results, [&](const auto& r) {
      const auto& targets = frames_.binding(frames_.line(r.first.first, r.first.second)).targets;
      return targets.size() != 1 || targets[0].size() < 2 || targets[0].size() != r.second.size();
    });
    find_readers(results);
    for (const auto& [line, values] : results) settle(line, values, place);
    return place;
  }

 private:
  /// Lines of the frame that read the results, in order.
  void find_readers(const std::map<NamedLine, std::vector<std::size_t>>& results) {
    for (const auto& [line, values] : results)
      for (const std::size_t v : values) readers_[v];
    if (readers_.empty()) return;
    for (std::size_t i = 0; i < tape_.calls.size(); ++i)
      for_each_value(tape_.calls[i], [&](ValueId id) {
        const auto v = static_cast<std::size_t>(id.index);
        const auto it = readers_.find(v);
        if (it == readers_.end()) return;
        const std::size_t line = frames_.line_of(lives_[v].top, static_cast<std::int32_t>(i));
        if (it->second.empty() || it->second.back() != line) it->second.push_back(line);
      });
  }

  /// Whether a line between the two binds the name.
  bool binds_between(std::int32_t frame, std::size_t from, std::size_t to, const std::string& name) const {
    for (std::size_t i = from + 1; i < to; ++i)
      for (const auto& names : frames_.binding(frames_.line(frame, i)).targets)
        if (std::ranges::find(names, name) != names.end()) return true;
    return false;
  }

  /// The line's names by which all of the readers that name any of them may read the value; none of them: they differ.
  Candidates candidates(const NamedLine& line, std::size_t v) const {
    const auto& names = frames_.binding(frames_.line(line.first, line.second)).targets[0];
    Candidates out(names.size(), true);
    for (const std::size_t reader : readers_.at(v)) {
      const std::int32_t binding = reader <= line.second ? -1 : frames_.line(line.first, reader).binding;
      if (binding < 0) continue;
      const Statement& statement = lines_[static_cast<std::size_t>(binding)];
      std::vector<std::string_view> read = names_read(statement.value, true);
      if (statement.augmented && !statement.targets.empty())
        read.insert(read.end(), statement.targets[0].begin(), statement.targets[0].end());
      Candidates here(names.size(), false);
      for (std::size_t k = 0; k < names.size(); ++k)
        here[k] = std::ranges::find(read, names[k]) != read.end() &&
                  !binds_between(line.first, line.second, reader, names[k]);
      if (std::ranges::find(here, true) == here.end()) continue;
      for (std::size_t k = 0; k < names.size(); ++k) out[k] = out[k] && here[k];
    }
    return out;
  }

  /// Gives values that can have one name alone that name, and the others what is left for them, in order.
  void settle(const NamedLine& line, const std::vector<std::size_t>& values, std::vector<std::int32_t>& place) const {
    const std::size_t n = values.size();
    std::vector<Candidates> may;
    for (const std::size_t v : values) may.push_back(candidates(line, v));
    std::vector<std::int32_t> found(n, -1);
    std::vector<bool> taken(n, false);
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < n; ++i) {
        if (found[i] >= 0) continue;
        for (std::size_t k = 0; k < n; ++k) may[i][k] = may[i][k] && !taken[k];
        const auto count = std::ranges::count(may[i], true);
        if (count == 0) return;  // the lines do not agree
        if (count > 1) continue;
        found[i] = static_cast<std::int32_t>(std::ranges::find(may[i], true) - may[i].begin());
        taken[static_cast<std::size_t>(found[i])] = more = true;
      }
    }
    // Those with fewer names to choose from come first.
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < n; ++i)
      if (found[i] < 0) open.push_back(i);
    std::ranges::stable_sort(open, {}, [&](std::size_t i) { return std::ranges::count(may[i], true); });
    for (const std::size_t i : open) {
      std::size_t k = 0;
      while (k < n && (taken[k] || !may[i][k])) ++k;
      if (k == n) return;
      taken[k] = true;
      found[i] = static_cast<std::int32_t>(k);
    }
    for (std::size_t i = 0; i < n; ++i) place[values[i]] = found[i];
  }

  const Tape& tape_;
  const Frames& frames_;
  const std::vector<Statement>& lines_;
  const std::vector<ValueLife>& lives_;
  std::map<std::size_t, std::vector<std::size_t>> readers_;  ///< by value
};

}  // namespace

std::vector<std::int32_t> places_among_names(const Tape& tape, const Frames& frames,
                                             const std::vector<Statement>& lines, const std::vector<ValueLife>& lives,
                                             const std::vector<std::int32_t>& settled) {
  return TupleNames(tape, frames, lines, lives).run(settled);
}

}  // namespace memplan
