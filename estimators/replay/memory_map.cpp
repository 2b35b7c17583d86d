#include "estimators/replay/memory_map.h"

namespace memplan {

namespace {

std::vector<MappedSegment> with_allocations(const CachingAllocator& allocator, const std::vector<std::int32_t>& owner) {
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

Result<MemoryMap> map_memory(const Schedule& schedule, const AllocatorSetup& setup, const Device& device,
                             std::int32_t event) {
  return catching([&] {
    CachingAllocator allocator(setup, DeviceMemory(device.total, device.context));
    MemoryMap map;
    std::vector<SegmentEvent> log;
    allocator.record_segments(&log);
    std::vector<BlockId> blocks(schedule.allocations.size(), no_block);
    std::vector<std::int32_t> owner;  // of blocks in use
    for (std::size_t i = 0; i < schedule.events.size(); ++i) {
      const Event& e = schedule.events[i];
      const auto id = static_cast<std::size_t>(e.allocation);
      if (e.kind == Event::Kind::empty_cache) {
        allocator.empty_cache();
      } else if (e.kind == Event::Kind::free) {
        if (blocks[id] != no_block) allocator.free(blocks[id]);
        blocks[id] = no_block;
      } else if (schedule.allocations[id].size.count > 0) {
        const Allocation& a = schedule.allocations[id];
        blocks[id] = allocator.malloc(a.size.count, a.stream);
        if (blocks[id] == no_block)
          map.refused = a.size.count;
        else {
          if (static_cast<std::size_t>(blocks[id]) >= owner.size())
            owner.resize(static_cast<std::size_t>(blocks[id]) + 1, -1);
          owner[static_cast<std::size_t>(blocks[id])] = e.allocation;
        }
      }
      for (const SegmentEvent& call : log) map.driver.push_back({static_cast<std::int32_t>(i), call});
      log.clear();
      if (static_cast<std::int32_t>(i) == event) map.at_event = with_allocations(allocator, owner);
      if (map.refused > 0) break;
    }
    map.at_end = with_allocations(allocator, owner);
    return map;
  });
}

}  // namespace memplan
