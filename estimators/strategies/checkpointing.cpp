#include "estimators/strategies/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/strategies/blocks.h"

namespace memplan {

namespace {

class Marker {
 public:
  explicit Marker(const Tape& tape) : tape_(tape), spans_(tape) {}

  /// Calls of the outermost of these modules, in the order of the forward pass.
  std::vector<CheckpointRegion> regions(const std::set<std::int32_t>& scopes) const {
    std::vector<CheckpointRegion> out;
    for (std::int32_t s : outermost(tape_, scopes))
      if (spans_.first[static_cast<std::size_t>(s)] >= 0) out.push_back({spans_.first[static_cast<std::size_t>(s)], spans_.last[static_cast<std::size_t>(s)], s, {}});
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  /// Neighbours of one list of modules, n at a time, as one stretch each.
  std::vector<CheckpointRegion> groups(std::int64_t n) const {
    std::vector<CheckpointRegion> out;
    std::string_view list;
    for (const CheckpointRegion& r : regions(repeated_modules(tape_))) {
      const std::string_view owner = without_number(scope(r.scope).path);
      const bool joins = !out.empty() && owner == list && out.back().last + 1 == r.first && static_cast<std::int64_t>(out.back().others.size()) + 1 < n;
      if (joins) {
        out.back().others.push_back(r.scope);
        out.back().last = r.last;
      } else {
        out.push_back(r);
      }
      list = owner;
    }
    return out;
  }

  std::vector<CheckpointRegion> possible() const {
    std::map<std::string_view, int> calls;
    for (const Scope& s : tape_.scopes) ++calls[s.path];
    std::vector<CheckpointRegion> out;
    std::map<std::int32_t, std::vector<CheckpointRegion>> sequences;  // children of each nn.Sequential
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i) {
      const Scope& s = tape_.scopes[i];
      const auto id = static_cast<std::int32_t>(i);
      if (s.path.empty() || s.parent < 0 || spans_.first[i] < 0 || calls[s.path] != 1 || !together(id) || takes_list(spans_.first[i], spans_.last[i])) continue;
      out.push_back({spans_.first[i], spans_.last[i], id, {}});
      if (scope(s.parent).module_class == "torch.nn.modules.container.Sequential") sequences[s.parent].push_back(out.back());
    }
    for (auto& [parent, members] : sequences) {
      std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t i = 0; i < members.size(); ++i) {
        CheckpointRegion run = members[i];
        // All of them are the nn.Sequential itself.
        for (std::size_t k = i + 1; k < members.size() && !(i == 0 && k + 1 == members.size()); ++k) {
          if (members[k].first != run.last + 1) break;
          run.last = members[k].last;
          run.others.push_back(members[k].scope);
          out.push_back(run);
        }
      }
    }
    return out;
  }

  /// "layer1.0+layer1.1": modules that follow each other, as one stretch. Empty where they do not.
  std::vector<CheckpointRegion> chained(const std::string& paths) const {
    std::vector<CheckpointRegion> out;
    for (std::size_t begin = 0; begin <= paths.size();) {
      const std::size_t end = std::min(paths.find('+', begin), paths.size());
      const std::set<std::int32_t> found = matching_modules(tape_, paths.substr(begin, end - begin));
      begin = end + 1;
      if (found.size() != 1) return {};
      const auto s = static_cast<std::size_t>(*found.begin());
      if (spans_.first[s] < 0 || (!out.empty() && out[0].last + 1 != spans_.first[s])) return {};
      if (out.empty()) out.push_back({spans_.first[s], spans_.last[s], *found.begin(), {}});
      else out[0].others.push_back(*found.begin()), out[0].last = spans_.last[s];
    }
    return out;
  }

  /// Of the repeated blocks every nth.
  std::set<std::int32_t> every(std::int64_t n) const {
    std::set<std::int32_t> out;
    std::int64_t count = 0;
    for (const CheckpointRegion& r : regions(repeated_modules(tape_)))
      if (++count % n == 0) out.insert(r.scope);
    return out;
  }

 private:
  /// A call joins several tensors from outside, or one in a list that is joined again behind the stretch with more in it: the
  /// module was probably handed a list, which its owner goes on to fill (the layers of a DenseNet; the first of them gets a
  /// list of one), so that it would be another one when the module runs again.
  bool takes_list(std::int32_t first, std::int32_t last) const {
    std::set<std::int32_t> inside;
    for (std::int32_t i = first; i <= last; ++i) {
      const Call& call = tape_.calls[static_cast<std::size_t>(i)];
      for (const Arg& arg : call.args) {
        const auto* list = std::get_if<Arg::List>(&arg.value);
        if (!list) continue;
        const auto from_outside = std::count_if(list->begin(), list->end(), [&](const Arg& item) {
          const auto* id = std::get_if<ValueId>(&item.value);
          return id && id->valid() && tape_.values[static_cast<std::size_t>(id->index)].kind == ValueKind::computed && !inside.count(id->index);
        });
        if (!call.op.starts_with("aten::cat")) continue;
        if (from_outside > 1 || (from_outside == 1 && list->size() == 1 && grows_behind(*list, last))) return true;
      }
      for (ValueId id : call.outputs) inside.insert(id.index);
    }
    return false;
  }

  /// A call after `last` joins what this list of one holds and more.
  bool grows_behind(const Arg::List& list, std::int32_t last) const {
    const ValueId item = std::get<ValueId>(list[0].value);
    for (auto i = static_cast<std::size_t>(last) + 1; i < tape_.calls.size(); ++i)
      for (const Arg& arg : tape_.calls[i].args)
        if (const auto* other = std::get_if<Arg::List>(&arg.value); other && other->size() > 1 && tape_.calls[i].op.starts_with("aten::cat"))
          if (const auto* id = std::get_if<ValueId>(&(*other)[0].value); id && id->index == item.index) return true;
    return false;
  }

  /// No call of another module stands between those of `s`.
  bool together(std::int32_t s) const {
    for (std::int32_t i = spans_.first[static_cast<std::size_t>(s)]; i <= spans_.last[static_cast<std::size_t>(s)]; ++i) {
      std::int32_t p = tape_.calls[static_cast<std::size_t>(i)].scope;
      while (p >= 0 && p != s) p = scope(p).parent;
      if (p != s) return false;
    }
    return true;
  }

  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  const Tape& tape_;
  ScopeSpans spans_;
};

}  // namespace

namespace {

/// The N of "every:N" and "groups:N".
std::int64_t number_of(const std::string& word, std::size_t blocks) {
  const std::int64_t n = std::strtoll(word.c_str() + word.find(':') + 1, nullptr, 10);
  if (n < 1) fail(ErrorKind::usage, fmt::format("'{}' does not say how many blocks", word), "--checkpoint " + word, "write every:2 or groups:2");
  if (static_cast<std::size_t>(n) > blocks)
    fail(ErrorKind::usage, fmt::format("the model has {} repeated blocks", blocks), "--checkpoint " + word, "give a smaller number");
  return n;
}

}  // namespace

void checkpoint_modules(Tape& tape, const std::vector<std::string>& globs) {
  tape.checkpoints.clear();
  if (globs.empty()) return;
  Marker marker(tape);
  std::set<std::int32_t> wanted;
  std::vector<CheckpointRegion> chains;
  for (const std::string& glob : globs) {
    if (glob.find('+') != std::string::npos) {
      const auto chain = marker.chained(glob);
      if (chain.empty())
        fail(ErrorKind::usage, fmt::format("'{}' are no modules that run one after the other", glob), "--checkpoint " + glob, "join neighbours of one list, as in layer1.0+layer1.1");
      chains.push_back(chain.front());
      continue;
    }
    const bool every = glob.starts_with("every:"), groups = glob.starts_with("groups:"), repeated = every || groups || glob == "blocks";
    if (repeated && repeated_modules(tape).empty()) no_such_module(tape, glob, "--checkpoint");
    const std::int64_t n = every || groups ? number_of(glob, marker.regions(repeated_modules(tape)).size()) : 1;
    if (groups) {
      if (globs.size() > 1) fail(ErrorKind::usage, fmt::format("'{}' takes all blocks, so nothing can be named beside it", glob), "--checkpoint " + glob, "give it alone");
      tape.checkpoints = marker.groups(n);
      return;
    }
    const auto found = every ? marker.every(n) : repeated ? repeated_modules(tape) : matching_modules(tape, glob);
    if (found.empty()) no_such_module(tape, glob, "--checkpoint");
    wanted.insert(found.begin(), found.end());
  }
  tape.checkpoints = marker.regions(wanted);
  tape.checkpoints.insert(tape.checkpoints.end(), chains.begin(), chains.end());
  std::sort(tape.checkpoints.begin(), tape.checkpoints.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < tape.checkpoints.size(); ++i)
    if (tape.checkpoints[i].first <= tape.checkpoints[i - 1].last)
      fail(ErrorKind::usage, "two of the modules to checkpoint contain the same calls", "--checkpoint", "name each module once");
}

std::vector<CheckpointRegion> possible_regions(const Tape& tape) { return Marker(tape).possible(); }

}  // namespace memplan
