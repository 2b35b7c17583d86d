#include "estimators/replay/memory_map.h"

#include "estimators/replay/events.h"
#include "estimators/replay/replay.h"
#include "estimators/runtime/runtime.h"

namespace memplan {

namespace {

/// `owner`: the allocation of each block in use.
std::vector<MappedSegment> with_allocations(const Allocator& allocator, const std::vector<std::int32_t>& owner) {
  std::vector<MappedSegment> out;
  for (const SegmentView& s : allocator.segments()) {
    MappedSegment segment{s.address, s.bytes, s.stream, s.small, s.expandable, {}};
    segment.blocks.reserve(s.blocks.size());
    for (const BlockView& b : s.blocks)
      segment.blocks.push_back(
          {b.address, b.bytes, b.requested, b.allocated ? owner[static_cast<std::size_t>(b.id)] : -1});
    out.push_back(std::move(segment));
  }
  return out;
}

}  // namespace

MemoryMap map_memory(const Schedule& schedule, Allocator& allocator, std::int32_t event) {
  MemoryMap map;
  std::vector<SegmentEvent> log;
  allocator.record_segments(&log);
  std::vector<std::int32_t> owner;  // of blocks in use
  replay_events(schedule, allocator, [&](const Replayed& e) {
    map.refused = e.refused;
    if (e.placed.block != no_block) {
      const auto block = static_cast<std::size_t>(e.placed.block);
      if (block >= owner.size()) owner.resize(block + 1, -1);
      owner[block] = e.allocation;
    }
    for (const SegmentEvent& call : log) map.driver.push_back({e.event, call});
    log.clear();
    if (e.event == event) map.at_event = with_allocations(allocator, owner);
  });
  map.at_end = with_allocations(allocator, owner);
  allocator.record_segments(nullptr);
  return map;
}

Result<MemoryMap> map_memory(const Schedule& schedule, const TrainingSetup& setup, const Device& device,
                             std::int32_t event) {
  return catching([&] { return map_memory(schedule, *runtime_of(setup).allocator(schedule, setup, device), event); });
}

}  // namespace memplan
