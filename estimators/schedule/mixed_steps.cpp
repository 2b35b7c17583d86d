#include "estimators/schedule/mixed_steps.h"

#include <algorithm>
#include <cstddef>

namespace memplan {

namespace {

using Ids = std::vector<std::int32_t>;

class Mixture {
 public:
  /// False where another number of allocations lives at the beginning than lived at the end of what was added last.
  bool add(const Schedule& s, std::int32_t begin, std::int32_t end) {
    const Ids before = alive(s, begin);
    if (before.size() != held_.size()) return false;
    Ids here(s.allocations.size(), -1);
    for (std::size_t i = 0; i < before.size(); ++i) here[at(before[i])] = held_[i];
    for (std::int32_t e = begin; e < end; ++e) {
      Event event = s.events[at(e)];
      if (event.allocation >= 0) {
        std::int32_t& id = here[at(event.allocation)];
        const auto now = static_cast<std::int32_t>(mixed_.events.size());
        if (event.kind == Event::Kind::alloc) {
          id = static_cast<std::int32_t>(mixed_.allocations.size());
          mixed_.allocations.push_back(bare(s.allocations[at(event.allocation)], now));
        } else {
          mixed_.allocations[at(id)].died = now;
        }
        event.allocation = id;
      }
      mixed_.events.push_back(event);
    }
    held_.clear();
    for (std::int32_t id : alive(s, end)) held_.push_back(here[at(id)]);
    return true;
  }

  Schedule take() { return std::move(mixed_); }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  static Allocation bare(const Allocation& a, std::int32_t born) {
    Allocation out;
    out.size = a.size;
    out.stream = a.stream;
    out.category = a.category;
    out.born = born;
    return out;
  }

  /// What lives before event `when`, in the order of birth.
  static Ids alive(const Schedule& s, std::int32_t when) {
    Ids ids;
    for (std::size_t i = 0; i < s.allocations.size(); ++i) {
      const Allocation& a = s.allocations[i];
      if (a.born >= 0 && a.born < when && (a.died < 0 || a.died >= when)) ids.push_back(static_cast<std::int32_t>(i));
    }
    std::sort(ids.begin(), ids.end(),
              [&](std::int32_t a, std::int32_t b) { return s.allocations[at(a)].born < s.allocations[at(b)].born; });
    return ids;
  }

  Schedule mixed_;
  Ids held_;
};

}  // namespace

std::optional<Schedule> mixed_steps(const std::vector<const Schedule*>& order) {
  Mixture mixture;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Schedule& s = *order[i];
    if (s.step_begins.empty()) return std::nullopt;
    const std::size_t step = std::min(i, s.step_begins.size() - 1);
    const auto all = static_cast<std::int32_t>(s.events.size());
    const std::int32_t end = step + 1 < s.step_begins.size() ? s.step_begins[step + 1] : all;
    if (!mixture.add(s, i == 0 ? 0 : s.step_begins[step], end)) return std::nullopt;
  }
  return mixture.take();
}

}  // namespace memplan
