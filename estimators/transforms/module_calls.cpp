#include "estimators/transforms/module_calls.h"

#include <algorithm>
#include <set>

#include "estimators/tape/uses.h"
#include "estimators/transforms/blocks.h"

namespace memplan {

ModuleCalls::ModuleCalls(const Tape& tape) {
  const auto count = static_cast<std::int32_t>(tape.calls.size());
  std::vector<std::int32_t> born(tape.values.size(), -1), last_use(tape.values.size(), -1);
  for (std::int32_t i = 0; i < count; ++i) {
    const Call& call = tape.calls[static_cast<std::size_t>(i)];
    for_each_value(call, [&](ValueId id) {
      if (id.valid()) last_use[static_cast<std::size_t>(id.index)] = i;
    });
    for (ValueId id : call.outputs)
      if (id.valid()) born[static_cast<std::size_t>(id.index)] = i;
  }
  for (ValueId id : tape.outputs)
    if (id.valid()) last_use[static_cast<std::size_t>(id.index)] = count;

  const ScopeSpans spans(tape);
  for (std::size_t s = 0; s < tape.scopes.size(); ++s) {
    if (spans.first[s] < 0) continue;
    ModuleCall m;
    m.scope = static_cast<std::int32_t>(s);
    m.first = spans.first[s];
    m.last = spans.last[s];
    std::set<ValueId> seen;
    for (std::int32_t i = m.first; i <= m.last; ++i) {
      const Call& call = tape.calls[static_cast<std::size_t>(i)];
      for_each_value(call, [&](ValueId id) {
        if (!id.valid()) return;
        const ValueKind kind = tape.values[static_cast<std::size_t>(id.index)].kind;
        if ((kind == ValueKind::computed || kind == ValueKind::user_input) &&
            born[static_cast<std::size_t>(id.index)] < m.first && seen.insert(id).second)
          m.inputs.push_back(id);
      });
      for (ValueId id : call.outputs)
        if (id.valid() && last_use[static_cast<std::size_t>(id.index)] > m.last) m.outputs.push_back(id);
    }
    calls.push_back(std::move(m));
  }
  // A parent's scope stands before its children's.
  for (std::size_t i = 0; i < calls.size(); ++i) begin_at[calls[i].first].push_back(i);
  for (std::size_t i = calls.size(); i-- > 0;) end_at[calls[i].last].push_back(i);
  const auto depth = [&](std::size_t i) {
    int d = 0;
    for (std::int32_t s = calls[i].scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent) ++d;
    return d;
  };
  for (auto& [at, who] : begin_at)
    std::stable_sort(who.begin(), who.end(), [&](auto a, auto b) { return depth(a) < depth(b); });
  for (auto& [at, who] : end_at)
    std::stable_sort(who.begin(), who.end(), [&](auto a, auto b) { return depth(a) > depth(b); });
}

}  // namespace memplan
