#include "estimators/measured/sessions.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace memplan {

Schedule in_measured_order(Schedule s, const Measurement& m) {
  const std::size_t end = s.step_begins.empty() ? s.events.size() : static_cast<std::size_t>(s.step_begins.front());
  const auto loads = [&](const Event& e) { return e.kind == Event::Kind::alloc && e.allocation >= 0; };
  if (!std::all_of(s.events.begin(), s.events.begin() + static_cast<std::ptrdiff_t>(end), loads)) return s;
  std::unordered_map<std::int64_t, std::deque<std::int32_t>> left;  // by size
  for (std::size_t i = 0; i < end; ++i)
    left[s.allocations[static_cast<std::size_t>(s.events[i].allocation)].size.count].push_back(s.events[i].allocation);
  std::vector<std::int32_t> order;
  for (const MeasuredEvent& e : m.events) {
    if (e.kind != MeasuredEvent::Kind::alloc || e.op < 0 || m.ops[static_cast<std::size_t>(e.op)].step != 0) continue;
    const auto of_size = left.find(e.bytes);
    if (of_size == left.end() || of_size->second.empty()) continue;
    order.push_back(of_size->second.front());
    of_size->second.pop_front();
  }
  for (std::size_t i = 0; i < end; ++i) {
    const std::int32_t allocation = s.events[i].allocation;
    const auto& rest = left[s.allocations[static_cast<std::size_t>(allocation)].size.count];
    if (std::find(rest.begin(), rest.end(), allocation) != rest.end()) order.push_back(allocation);
  }
  for (std::size_t i = 0; i < end; ++i) {
    s.events[i].allocation = order[i];
    s.allocations[static_cast<std::size_t>(order[i])].born = static_cast<std::int32_t>(i);
  }
  return s;
}

ComparedRegions compare_regions(const std::vector<DriverCall>& driver, const Measurement& m) {
  std::vector<std::int64_t> predicted, measured;
  for (const DriverCall& d : driver)
    if (d.call.kind == SegmentEvent::Kind::alloc) predicted.push_back(d.call.bytes);
  for (const MeasuredRegion& r : m.regions) measured.push_back(r.bytes);
  const auto apart = std::mismatch(predicted.begin(), predicted.end(), measured.begin(), measured.end()).first;
  return {static_cast<std::int64_t>(predicted.size()), static_cast<std::int64_t>(measured.size()),
          apart - predicted.begin()};
}

}  // namespace memplan
