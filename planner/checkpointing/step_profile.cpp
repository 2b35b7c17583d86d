#include "planner/checkpointing/step_profile.h"

#include <algorithm>

namespace memplan {

StepProfile profile_of_step(const Tape& tape, const Schedule& s) {
  const std::size_t n = tape.calls.size();
  StepProfile p;
  p.kept.assign(n, 0), p.forward.assign(n, 0), p.before.assign(n, 0), p.backward.assign(n, 0), p.entry.assign(n, 0);
  const auto last_step = static_cast<std::int32_t>(s.step_begins.size());
  std::vector<std::int32_t> order(s.allocations.size(), -1);
  std::vector<std::int32_t> made(n, 0);
  std::int64_t level = 0;
  std::size_t op = 0;
  std::int32_t unit = -1;
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    const Event& e = s.events[i];
    while (op + 1 < s.ops.size() && static_cast<std::size_t>(s.ops[op + 1].first_event) <= i) ++op;
    const OpRecord& o = s.ops[op];
    const bool here = o.step == last_step, in_model = here && o.call >= 0;
    const auto at = static_cast<std::size_t>(o.call);
    if (here && o.phase == Phase::forward && in_model) {
      if (unit != o.call) p.before[at] = level, unit = o.call;
    } else if (here && o.phase == Phase::backward) {
      if (in_model && p.entry[at] == 0) p.entry[at] = level;
    }
    if (e.kind != Event::Kind::empty_cache) {
      const auto id = static_cast<std::size_t>(e.allocation);
      const std::int64_t size = s.allocations[id].size.count;
      level += e.kind == Event::Kind::alloc ? size : -size;
      if (e.kind == Event::Kind::alloc && in_model && o.phase == Phase::forward) {
        order[id] = o.call;
        const Allocation& a = s.allocations[id];
        const std::int32_t nth = made[at]++;
        // It waits where it is freed in the backward pass, or later.
        const bool outlives = a.died < 0 || [&] {
          const auto after = std::upper_bound(s.ops.begin(), s.ops.end(), a.died,
                                              [](std::int32_t x, const OpRecord& r) { return x < r.first_event; });
          return after == s.ops.begin() ? false : (after - 1)->phase != Phase::forward || (after - 1)->step != o.step;
        }();
        if (outlives) {
          p.kept[at] += size;
          p.waiting.insert({o.call, nth});
        }
      }
    }
    if (!here) continue;
    if (o.phase == Phase::forward && in_model)
      p.forward[at] = std::max(p.forward[at], level);
    else if (o.phase == Phase::backward && in_model)
      p.backward[at] = std::max(p.backward[at], level);
    else if (o.phase == Phase::backward || o.phase == Phase::loss)
      p.loss = std::max(p.loss, o.call < 0 && o.phase == Phase::loss ? level : p.loss);
    else
      p.rest = std::max(p.rest, level);
  }
  return p;
}

}  // namespace memplan
