#include "estimators/strategies/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/tape/passes.h"

namespace memplan {

namespace {

std::string_view without_number(std::string_view path) {
  while (!path.empty() && path.back() >= '0' && path.back() <= '9') path.remove_suffix(1);
  return path;
}

class Marker {
 public:
  explicit Marker(const Tape& tape) : tape_(tape), first_(tape.scopes.size(), -1), last_(tape.scopes.size(), -1) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      for (std::int32_t s = tape.calls[i].scope; s >= 0; s = scope(s).parent) {
        auto& first = first_[static_cast<std::size_t>(s)];
        if (first < 0) first = static_cast<std::int32_t>(i);
        last_[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(i);
      }
  }

  /// Repeated modules that hold other modules. Leaves such as the layers of an nn.Sequential of Linears are no blocks.
  std::set<std::int32_t> blocks() const {
    std::set<std::int32_t> parents;
    for (const Scope& s : tape_.scopes) parents.insert(s.parent);
    std::map<std::pair<std::string_view, std::string_view>, std::set<std::string_view>> members;
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i) {
      const Scope& s = tape_.scopes[i];
      if (s.module_class.rfind("torch.nn.modules.container.", 0) == 0) continue;  // what it contains are the blocks
      if (without_number(s.path).size() == s.path.size() || !parents.count(static_cast<std::int32_t>(i))) continue;
      members[{without_number(s.path), s.module_class}].insert(s.path);
    }
    std::set<std::int32_t> out;
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i) {
      const Scope& s = tape_.scopes[i];
      const auto it = members.find({without_number(s.path), s.module_class});
      if (it != members.end() && it->second.size() > 1 && it->second.count(s.path)) out.insert(static_cast<std::int32_t>(i));
    }
    return out;
  }

  std::set<std::int32_t> matching(const std::string& glob) const {
    std::set<std::int32_t> out;
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i)
      if (!tape_.scopes[i].path.empty() && matches_glob(tape_.scopes[i].path, glob)) out.insert(static_cast<std::int32_t>(i));
    return out;
  }

  /// Calls of the outermost of these modules, in the order of the forward pass.
  std::vector<CheckpointRegion> regions(const std::set<std::int32_t>& scopes) const {
    std::vector<CheckpointRegion> out;
    for (std::int32_t s : scopes) {
      bool inside = false;
      for (std::int32_t p = scope(s).parent; p >= 0; p = scope(p).parent) inside = inside || scopes.count(p);
      if (!inside && first_[static_cast<std::size_t>(s)] >= 0) out.push_back({first_[static_cast<std::size_t>(s)], last_[static_cast<std::size_t>(s)], s, {}});
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  /// Neighbours of one list of modules, n at a time, as one stretch each.
  std::vector<CheckpointRegion> groups(std::int64_t n) const {
    std::vector<CheckpointRegion> out;
    std::string_view list;
    for (const CheckpointRegion& r : regions(blocks())) {
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
      if (s.path.empty() || s.parent < 0 || first_[i] < 0 || calls[s.path] != 1 || !together(id) || takes_list(first_[i], last_[i])) continue;
      out.push_back({first_[i], last_[i], id, {}});
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
      const std::set<std::int32_t> found = matching(paths.substr(begin, end - begin));
      begin = end + 1;
      if (found.size() != 1) return {};
      const auto s = static_cast<std::size_t>(*found.begin());
      if (first_[s] < 0 || (!out.empty() && out[0].last + 1 != first_[s])) return {};
      if (out.empty()) out.push_back({first_[s], last_[s], *found.begin(), {}});
      else out[0].others.push_back(*found.begin()), out[0].last = last_[s];
    }
    return out;
  }

  /// Of the repeated blocks every nth.
  std::set<std::int32_t> every(std::int64_t n) const {
    std::set<std::int32_t> out;
    std::int64_t count = 0;
    for (const CheckpointRegion& r : regions(blocks()))
      if (++count % n == 0) out.insert(r.scope);
    return out;
  }

 private:
  /// A call joins several tensors from outside: the module was probably handed a list, which its owner goes on to fill (the
  /// layers of a DenseNet), so that it would be another one when the module runs again.
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
        if (from_outside > 1 && call.op.starts_with("aten::cat")) return true;
      }
      for (ValueId id : call.outputs) inside.insert(id.index);
    }
    return false;
  }

  /// No call of another module stands between those of `s`.
  bool together(std::int32_t s) const {
    for (std::int32_t i = first_[static_cast<std::size_t>(s)]; i <= last_[static_cast<std::size_t>(s)]; ++i) {
      std::int32_t p = tape_.calls[static_cast<std::size_t>(i)].scope;
      while (p >= 0 && p != s) p = scope(p).parent;
      if (p != s) return false;
    }
    return true;
  }

  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  const Tape& tape_;
  std::vector<std::int32_t> first_, last_;
};

}  // namespace

namespace {

[[noreturn]] void nothing_found(const Tape& tape, const std::string& glob, bool repeated) {
  std::string example;
  for (const Scope& s : tape.scopes)
    if (example.empty() && !s.path.empty()) example = s.path;
  fail(ErrorKind::usage, repeated ? "the model has no repeated blocks" : fmt::format("no module matches '{}'", glob), "--checkpoint " + glob,
       example.empty() ? "the file does not say which modules its nodes came from"
                       : fmt::format("modules have paths such as '{}'; '*' matches any run of characters", example));
}

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
    if (repeated && marker.blocks().empty()) nothing_found(tape, glob, true);
    const std::int64_t n = every || groups ? number_of(glob, marker.regions(marker.blocks()).size()) : 1;
    if (groups) {
      if (globs.size() > 1) fail(ErrorKind::usage, fmt::format("'{}' takes all blocks, so nothing can be named beside it", glob), "--checkpoint " + glob, "give it alone");
      tape.checkpoints = marker.groups(n);
      return;
    }
    const auto found = every ? marker.every(n) : repeated ? marker.blocks() : marker.matching(glob);
    if (found.empty()) nothing_found(tape, glob, false);
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
