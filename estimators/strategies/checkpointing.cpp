#include "estimators/strategies/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
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
  explicit Marker(Tape& tape) : tape_(tape), first_(tape.scopes.size(), -1), last_(tape.scopes.size(), -1) {
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

  void mark(const std::set<std::int32_t>& scopes) {
    for (std::int32_t s : scopes) {
      bool inside = false;
      for (std::int32_t p = scope(s).parent; p >= 0; p = scope(p).parent) inside = inside || scopes.count(p);
      if (!inside && first_[static_cast<std::size_t>(s)] >= 0)
        tape_.checkpoints.push_back({first_[static_cast<std::size_t>(s)], last_[static_cast<std::size_t>(s)], s});
    }
    std::sort(tape_.checkpoints.begin(), tape_.checkpoints.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }

 private:
  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  Tape& tape_;
  std::vector<std::int32_t> first_, last_;
};

}  // namespace

void checkpoint_modules(Tape& tape, const std::vector<std::string>& globs) {
  tape.checkpoints.clear();
  if (globs.empty()) return;
  Marker marker(tape);
  std::set<std::int32_t> wanted;
  for (const std::string& glob : globs) {
    const auto found = glob == "blocks" ? marker.blocks() : marker.matching(glob);
    if (found.empty()) {
      std::string example;
      for (const Scope& s : tape.scopes)
        if (example.empty() && !s.path.empty()) example = s.path;
      fail(ErrorKind::usage, glob == "blocks" ? "the model has no repeated blocks" : fmt::format("no module matches '{}'", glob), "--checkpoint " + glob,
           example.empty() ? "the file does not say which modules its nodes came from"
                           : fmt::format("modules have paths such as '{}'; '*' matches any run of characters", example));
    }
    wanted.insert(found.begin(), found.end());
  }
  marker.mark(wanted);
}

}  // namespace memplan
