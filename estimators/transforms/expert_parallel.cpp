#include "estimators/transforms/expert_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "a.experts.3.up" -> ("a.experts", 3).
std::optional<std::pair<std::string, std::int64_t>> expert_of(std::string_view path) {
  const std::size_t at = path.find("experts.");
  if (at == std::string_view::npos || (at > 0 && path[at - 1] != '.')) return {};
  std::size_t end = at + 8;
  std::int64_t index = 0;
  const std::size_t begin = end;
  while (end < path.size() && path[end] >= '0' && path[end] <= '9') index = index * 10 + (path[end++] - '0');
  if (end == begin || (end < path.size() && path[end] != '.')) return {};
  return std::pair{std::string(path.substr(0, at + 7)), index};
}

class Sharer {
 public:
  Sharer(Tape& tape, std::int64_t ranks) : tape_(tape), ranks_(ranks), owner_(tape.calls.size()) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      if (tape.calls[i].scope < 0) continue;
      owner_[i] = expert_of(tape.scopes[static_cast<std::size_t>(tape.calls[i].scope)].path);
      if (owner_[i]) counts_[owner_[i]->first] = std::max(counts_[owner_[i]->first], owner_[i]->second + 1);
    }
    if (counts_.empty())
      fail(ErrorKind::usage, "the model has no experts in modules of their own ('….experts.0')",
           setting(Field::expert_parallel), "leave " + setting(Field::expert_parallel) + " out");
    for (const auto& [path, count] : counts_)
      if (count % ranks != 0)
        fail(ErrorKind::usage,
             fmt::format("{} expert-parallel ranks do not divide the {} experts of {}", ranks, count, path),
             setting(Field::expert_parallel), fmt::format("use a divisor of {}", count));
  }

  void run() {
    find_results();
    std::vector<Call> before = std::move(tape_.calls);
    tape_.calls.clear();
    std::vector<std::int32_t> begin(before.size()), end(before.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      begin[i] = static_cast<std::int32_t>(tape_.calls.size());
      Call& call = before[i];
      call.last_uses.clear();
      if (owner_[i] && !stays(*owner_[i])) {
        // Its results are those of the expert in the same place among the kept ones.
        for (ValueId id : call.outputs)
          if (results_.count(id)) twin_[id] = kept_results_[{owner_[i]->first, owner_[i]->second % local(*owner_[i])}];
      } else {
        replace_values(call, [&](ValueId id) { return Arg{replaced(id, owner_[i])}; });
        std::vector<std::pair<ValueId, ValueId>> scattered;
        if (owner_[i])
          for (ValueId& id : call.outputs)
            if (results_.count(id)) {
              const ValueId whole = fresh(id, ".all_tokens");
              inside_[id] = whole;
              scattered.emplace_back(whole, id);
              kept_results_[{owner_[i]->first, owner_[i]->second}] = id;
              id = whole;
            }
        const std::int32_t scope = call.scope;
        tape_.calls.push_back(std::move(call));
        for (const auto& [whole, id] : scattered) add("memplan::reduce_scatter", whole, id, scope);
      }
      end[i] = static_cast<std::int32_t>(tape_.calls.size()) - 1;
    }
    for (CheckpointRegion& region : tape_.checkpoints) {
      region.first = begin[static_cast<std::size_t>(region.first)];
      region.last = end[static_cast<std::size_t>(region.last)];
    }
    std::erase_if(tape_.parameters, [&](ValueId id) {
      const auto expert = expert_of(tape_.values[static_cast<std::size_t>(id.index)].name);
      return expert && counts_.count(expert->first) && !stays(*expert);
    });
    mark_last_uses(tape_);
  }

 private:
  using Expert = std::pair<std::string, std::int64_t>;
  std::int64_t local(const Expert& e) const { return counts_.at(e.first) / ranks_; }
  bool stays(const Expert& e) const { return e.second < local(e); }

  /// Values that leave an expert.
  void find_results() {
    std::map<ValueId, std::optional<Expert>> born;
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      for_each_value(tape_.calls[i], [&](ValueId id) {
        const auto it = born.find(id);
        if (it != born.end() && it->second && it->second != owner_[i]) results_.insert(id);
      });
      for (ValueId id : tape_.calls[i].outputs)
        if (id.valid()) born[id] = owner_[i];
    }
    born_ = std::move(born);
  }

  ValueId fresh(ValueId like, const char* suffix) {
    TapeValue v = tape_.values[static_cast<std::size_t>(like.index)];
    v.name += suffix;
    v.kind = ValueKind::computed;
    return tape_.add_value(std::move(v));
  }

  void add(const char* op, ValueId in, ValueId out, std::int32_t scope) {
    Call c;
    c.op = op;
    c.args = {{in}, {std::int64_t{0}}, {ranks_}};
    c.outputs = {out};
    c.scope = scope;
    tape_.calls.push_back(std::move(c));
  }

  ValueId replaced(ValueId id, const std::optional<Expert>& reader) {
    if (const auto it = twin_.find(id); it != twin_.end()) return it->second;
    if (!reader) return id;
    const auto it = born_.find(id);
    if (it == born_.end()) return id;  // parameters, inputs
    if (it->second == reader) return inside_.count(id) ? inside_[id] : id;
    ValueId& known = gathered_[id];
    if (!known.valid()) {
      known = fresh(id, ".all_tokens");
      add("memplan::all_gather", id, known, -1);
    }
    return known;
  }

  Tape& tape_;
  const std::int64_t ranks_;
  std::vector<std::optional<Expert>> owner_;  ///< per call
  std::map<std::string, std::int64_t> counts_;
  std::map<ValueId, std::optional<Expert>> born_;
  std::set<ValueId> results_;
  std::map<Expert, ValueId> kept_results_;
  std::map<ValueId, ValueId> twin_, inside_, gathered_;
};

}  // namespace

void share_experts(Tape& tape, std::int64_t ranks) { Sharer(tape, ranks).run(); }

}  // namespace memplan
