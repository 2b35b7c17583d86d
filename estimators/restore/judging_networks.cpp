#include "estimators/restore/judging_networks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/uses.h"

namespace memplan {

namespace {

using Parts = std::uint64_t;  ///< a bit for each part of the model

class Judges {
 public:
  explicit Judges(const Tape& tape) : tape_(tape), maker_(makers_of(tape)), gone_in_(tape.values.size(), 0) {}

  std::set<std::string> run() {
    for (const Scope& s : tape_.scopes)
      if (s.call > 0) repeated_.insert(s.path);
    if (repeated_.empty()) return {};
    for (const ValueId id : tape_.parameters)
      if (const TapeValue& v = value(id); v.requires_grad) gone_in_[at(id)] = part_of(v.name);
    for (const Call& call : tape_.calls) {
      look(call);
      Parts all = 0;
      for_each_value(call, [&](ValueId id) { all |= gone_in_[at(id)]; });
      for (const ValueId id : call.outputs)
        if (id.valid()) gone_in_[at(id)] = all;
    }
    std::map<std::string_view, std::pair<bool, bool>> reads;  // by path: of other parts, and of none
    for (const auto& [scope, parts] : given_) {
      auto& [of_others, of_none] = reads[tape_.scopes[scope].path];
      (parts != 0 ? of_others : of_none) = true;
    }
    std::set<std::string> found;
    for (const auto& [path, of] : reads)
      if (of.first && of.second) found.insert(std::string(path.substr(0, path.find('.'))) + ".");
    return found;
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id.index); }
  const TapeValue& value(ValueId id) const { return tape_.values[at(id)]; }

  /// Those beyond the last bit share it.
  Parts part_of(std::string_view path) {
    constexpr std::size_t last = 63;
    const auto [it, fresh] = parts_.try_emplace(path.substr(0, path.find('.')), parts_.size());
    return Parts{1} << std::min(it->second, last);
  }

  bool is_in(std::int32_t scope, std::int32_t module) const {
    while (scope >= 0 && scope != module) scope = tape_.scopes[static_cast<std::size_t>(scope)].parent;
    return scope == module;
  }

  /// What the call reads from outside of the modules around it that are called several times.
  void look(const Call& call) {
    for (std::int32_t s = call.scope; s >= 0; s = tape_.scopes[static_cast<std::size_t>(s)].parent) {
      const std::string& path = tape_.scopes[static_cast<std::size_t>(s)].path;
      if (path.empty() || !repeated_.contains(path)) continue;
      for_each_value(call, [&](ValueId id) {
        const std::int32_t made = maker_[at(id)];
        const bool given = made < 0 ? value(id).kind == ValueKind::user_input
                                    : !is_in(tape_.calls[static_cast<std::size_t>(made)].scope, s);
        if (given) given_[static_cast<std::size_t>(s)] |= gone_in_[at(id)] & ~part_of(path);
      });
    }
  }

  const Tape& tape_;
  const std::vector<std::int32_t> maker_;
  std::vector<Parts> gone_in_;           ///< by value: parts whose trained parameters it depends on
  std::set<std::string_view> repeated_;  ///< paths of modules that are called several times
  std::map<std::string_view, std::size_t> parts_;
  std::map<std::size_t, Parts> given_;  ///< by scope
};

}  // namespace

std::set<std::string> judging_networks(const Tape& tape) { return Judges(tape).run(); }

}  // namespace memplan
