#include "planner/checkpointing/step_profile.h"

#include <algorithm>
#include <map>

#include "estimators/runtime/torch/step/inspect_forward.h"
#include "estimators/tape/uses.h"

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

std::vector<std::int64_t> crossing_bytes(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                         const StepProfile& p, const std::vector<CheckpointRegion>& regions) {
  std::vector<std::int64_t> crossing(regions.size(), 0);
  inspect_forward(tape, setup, device, [&](const Run& run, const Environment& env) {
    const auto storage_of = [&](ValueId id) -> const Storage* {
      if (!id.valid() || tape.values[static_cast<std::size_t>(id.index)].kind != ValueKind::computed) return nullptr;
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      return v.is_tensor() && v.tensor() && v.tensor()->storage->allocation >= 0 ? v.tensor()->storage.get() : nullptr;
    };
    struct Use {
      std::int32_t born = 0, last = 0;
      bool waits = false;
    };
    std::map<const Storage*, Use> uses;
    std::map<std::int32_t, std::int32_t> nth;  // allocation -> its number within its call
    std::vector<std::int32_t> made(tape.calls.size(), 0);
    for (std::size_t a = 0; a < run.schedule.allocations.size(); ++a) {
      const std::int32_t op = run.schedule.allocations[a].op;
      const std::int32_t call = op < 0 ? -1 : run.schedule.ops[static_cast<std::size_t>(op)].call;
      if (call >= 0) nth[static_cast<std::int32_t>(a)] = made[static_cast<std::size_t>(call)]++;
    }
    std::vector<std::vector<const Storage*>> read(tape.calls.size());
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      for_each_value(tape.calls[i], [&](ValueId id) {
        if (const Storage* s = storage_of(id)) uses[s].last = at, read[i].push_back(s);
      });
      for (ValueId id : tape.calls[i].outputs)
        if (const Storage* s = storage_of(id); s && !uses.count(s)) {
          const auto number = nth.find(s->allocation);
          uses[s] = {at, at, number != nth.end() && p.waiting.count({at, number->second}) > 0};
        }
    }
    for (ValueId id : tape.outputs)
      if (const Storage* s = storage_of(id)) uses[s].last = static_cast<std::int32_t>(tape.calls.size());
    for (std::size_t r = 0; r < regions.size(); ++r) {
      const CheckpointRegion& c = regions[r];
      std::set<const Storage*> counted;
      for (std::int32_t i = c.first; i <= c.last; ++i) {
        for (const Storage* s : read[static_cast<std::size_t>(i)]) {
          const Use& u = uses.at(s);
          const bool inside = u.born >= c.first, handed_on = inside && u.last > c.last, held = !inside && !u.waits;
          if ((handed_on || held) && counted.insert(s).second) crossing[r] += s->bytes;
        }
        for (ValueId id : tape.calls[static_cast<std::size_t>(i)].outputs)
          if (const Storage* s = storage_of(id))
            if (uses.at(s).born >= c.first && uses.at(s).last > c.last && counted.insert(s).second)
              crossing[r] += s->bytes;
      }
    }
  });
  return crossing;
}

}  // namespace memplan
