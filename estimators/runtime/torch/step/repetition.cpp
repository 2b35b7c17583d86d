#include "estimators/runtime/torch/step/repetition.h"

#include <algorithm>
#include <utility>

#include "estimators/schedule/limits.h"

namespace memplan {

namespace {

bool same_op(const Schedule& s, std::size_t a, std::size_t b, std::size_t events) {
  const OpRecord &x = s.ops[a], &y = s.ops[b];
  return x.name == y.name && x.scope == y.scope && x.call == y.call && x.phase == y.phase &&
         x.first_event + static_cast<std::int32_t>(events) == y.first_event;
}

bool same_allocation(const Allocation& x, const Allocation& y, std::size_t ops) {
  return x.size == y.size && x.op + static_cast<std::int32_t>(ops) == y.op && x.stream == y.stream &&
         x.category == y.category && x.label == y.label && x.reason == y.reason && x.shape_at == y.shape_at;
}

bool same_request(const Schedule& s, const Allocation& x, const Allocation& y) {
  const OpRecord &a = s.ops[static_cast<std::size_t>(x.op)], &b = s.ops[static_cast<std::size_t>(y.op)];
  return a.name == b.name && a.scope == b.scope && a.call == b.call && a.phase == b.phase &&
         same_allocation(x, y, static_cast<std::size_t>(y.op - x.op));
}

/// Walks the first stretch and the second one side by side.
class FirstAndSecond {
 public:
  FirstAndSecond(const Schedule& schedule, const RecordMark& first, const RecordMark& second, const EventRange& once)
      : s_(schedule),
        first_(first),
        second_(second),
        once_(once),
        in_second_(second.allocation - first.allocation, -1) {}

  std::optional<Carried> carried() {
    std::size_t i = first_.event, j = second_.event;
    while (i < second_.event || j < s_.events.size()) {
      if (i < second_.event && (is_kept(s_.events[i]) || is_of_once(i)))
        ++i;
      else if (j < s_.events.size() && is_free_of_first(s_.events[j]))
        ++j;
      else if (i == second_.event || j == s_.events.size() || !same(s_.events[i++], s_.events[j++]))
        return std::nullopt;
    }
    return left_alive();
  }

 private:
  const Allocation& allocation(std::int32_t i) const { return s_.allocations[static_cast<std::size_t>(i)]; }
  bool is_of_first(std::int32_t i) const {
    return i >= static_cast<std::int32_t>(first_.allocation) && i < static_cast<std::int32_t>(second_.allocation);
  }
  std::int32_t& counterpart(std::int32_t i) { return in_second_[static_cast<std::size_t>(i) - first_.allocation]; }

  /// Made in the first stretch for good: states of an optimizer, workspaces that stay.
  bool is_kept(const Event& e) const { return e.kind == Event::Kind::alloc && allocation(e.allocation).died < 0; }
  /// What happens but once, and frees of what it made.
  bool is_of_once(std::size_t i) const {
    const auto within = [&](std::size_t at) { return at >= once_.begin && at < once_.end; };
    const Event& e = s_.events[i];
    return within(i) || (e.kind == Event::Kind::free && is_of_first(e.allocation) &&
                         within(static_cast<std::size_t>(allocation(e.allocation).born)));
  }
  bool is_free_of_first(const Event& e) const { return e.kind == Event::Kind::free && is_of_first(e.allocation); }

  bool same(const Event& x, const Event& y) {
    if (x.kind != y.kind) return false;
    if (x.kind == Event::Kind::empty_cache) return true;
    if (!is_of_first(x.allocation)) return false;
    if (x.kind == Event::Kind::free) return counterpart(x.allocation) == y.allocation;
    counterpart(x.allocation) = y.allocation;
    return same_request(s_, allocation(x.allocation), allocation(y.allocation));
  }

  std::optional<Carried> left_alive() {
    Carried out;
    for (auto i = static_cast<std::int32_t>(first_.allocation); is_of_first(i); ++i) {
      const std::int32_t died = allocation(i).died;
      if (died < static_cast<std::int32_t>(second_.event)) continue;  // in its own stretch, or never
      if (allocation(counterpart(i)).died >= 0) return std::nullopt;
      out.emplace(i, counterpart(i));
    }
    const auto alive = std::count_if(s_.allocations.begin() + static_cast<std::ptrdiff_t>(second_.allocation),
                                     s_.allocations.end(), [](const Allocation& a) { return a.died < 0; });
    return alive == std::ssize(out) ? std::optional(std::move(out)) : std::nullopt;
  }

  const Schedule& s_;
  const RecordMark &first_, &second_;
  const EventRange once_;
  std::vector<std::int32_t> in_second_;  ///< by allocation of the first stretch
};

/// Makes room for [last, end) that many times.
void reserve_stretches(Schedule& schedule, const RecordMark& last, std::size_t times) {
  if ((schedule.events.size() - last.event) * times > most_events) return;
  schedule.events.reserve(schedule.events.size() + (schedule.events.size() - last.event) * times);
  schedule.allocations.reserve(schedule.allocations.size() + (schedule.allocations.size() - last.allocation) * times);
  schedule.ops.reserve(schedule.ops.size() + (schedule.ops.size() - last.op) * times);
}

}  // namespace

RecordMark end_of(const Schedule& schedule) {
  RecordMark mark{schedule.events.size(), schedule.allocations.size(), schedule.ops.size(), {}};
  for (const Fact& f : schedule.notes) mark.notes.push_back(f.count);
  return mark;
}

bool is_repeated(const Schedule& schedule, const RecordMark& before, const RecordMark& last) {
  const std::size_t events = last.event - before.event, allocations = last.allocation - before.allocation,
                    ops = last.op - before.op;
  if (schedule.events.size() - last.event != events || schedule.allocations.size() - last.allocation != allocations ||
      schedule.ops.size() - last.op != ops)
    return false;
  for (std::size_t i = before.allocation; i < last.allocation; ++i)
    if (schedule.allocations[i].died < 0 ||
        !same_allocation(schedule.allocations[i], schedule.allocations[i + allocations], ops))
      return false;
  for (std::size_t i = before.event; i < last.event; ++i) {
    const Event &x = schedule.events[i], &y = schedule.events[i + events];
    if (x.kind != y.kind) return false;
    if (x.kind != Event::Kind::empty_cache && x.allocation + static_cast<std::int32_t>(allocations) != y.allocation)
      return false;
  }
  for (std::size_t i = before.op; i < last.op; ++i)
    if (!same_op(schedule, i, i + ops, events)) return false;
  return true;
}

std::optional<Carried> repeats_the_first(const Schedule& schedule, const RecordMark& first, const RecordMark& second,
                                         const EventRange& once) {
  return FirstAndSecond(schedule, first, second, once).carried();
}

RecordMark repeat_stretch(Schedule& schedule, const RecordMark& last, std::int32_t steps_later,
                          const Carried& carried) {
  const RecordMark end = end_of(schedule);
  const auto events = static_cast<std::int32_t>(end.event - last.event),
             allocations = static_cast<std::int32_t>(end.allocation - last.allocation),
             ops = static_cast<std::int32_t>(end.op - last.op);
  if (2 * end.event - last.event > most_events) fail_most_events();
  for (std::size_t i = last.allocation; i < end.allocation; ++i) {
    Allocation& a = schedule.allocations.emplace_back(Allocation(schedule.allocations[i]));
    a.born += events;
    a.op += ops;
    a.died = -1;
  }
  for (std::size_t i = last.op; i < end.op; ++i) {
    OpRecord& op = schedule.ops.emplace_back(OpRecord(schedule.ops[i]));
    op.first_event += events;
    op.step += steps_later;
  }
  for (std::size_t i = last.event; i < end.event; ++i) {
    Event event = schedule.events[i];
    if (event.kind != Event::Kind::empty_cache) {
      const auto it = carried.find(event.allocation);
      event.allocation = it == carried.end() ? event.allocation + allocations : it->second;
    }
    if (event.kind == Event::Kind::free)
      schedule.allocations[static_cast<std::size_t>(event.allocation)].died =
          static_cast<std::int32_t>(schedule.events.size());
    schedule.events.push_back(event);
  }
  for (std::size_t i = 0; i < end.notes.size(); ++i)
    schedule.notes[i].count += end.notes[i] - (i < last.notes.size() ? last.notes[i] : 0);
  return end;
}

void repeat_to_the_end(Run& run, const RecordMark& last, std::int64_t times, std::int32_t steps_later,
                       const Carried& carried) {
  RecordMark stretch = last;
  reserve_stretches(run.schedule, last, static_cast<std::size_t>(times));
  for (std::int64_t i = 0; i < times; ++i) {
    if (steps_later > 0) run.schedule.step_begins.push_back(static_cast<std::int32_t>(run.schedule.events.size()));
    stretch = repeat_stretch(run.schedule, stretch, steps_later, i == 0 ? carried : Carried{});
  }
  run.renumber(static_cast<std::int32_t>(last.allocation),
               static_cast<std::int32_t>(stretch.allocation - last.allocation));
}

}  // namespace memplan
