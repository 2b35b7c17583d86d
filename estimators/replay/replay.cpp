// Replays a schedule through the allocator of the device.
#include "estimators/pipeline.h"
#include "estimators/runtime/torch/allocator/caching_allocator.h"

namespace memplan {

Result<Timeline> replay(const Schedule& schedule, const AllocatorSetup& setup, const Device& device) {
  return catching([&] {
    CachingAllocator allocator(setup, DeviceMemory(device.total, device.context));
    Timeline timeline;
    timeline.samples.reserve(schedule.events.size());
    timeline.block_bytes.assign(schedule.allocations.size(), 0);
    timeline.addresses.assign(schedule.allocations.size(), 0);
    std::vector<BlockId> blocks(schedule.allocations.size(), no_block);
    const auto& all = allocator.stats().all;

    for (std::size_t i = 0; i < schedule.events.size(); ++i) {
      const Event& event = schedule.events[i];
      if (event.kind == Event::Kind::empty_cache) {
        allocator.empty_cache();
      } else {
        const auto id = static_cast<std::size_t>(event.allocation);
        if (id >= blocks.size()) fail(ErrorKind::internal, "an event names an allocation that does not exist");
        if (event.kind == Event::Kind::alloc) {
          const Allocation& allocation = schedule.allocations[id];
          // A request of no bytes gets a null pointer: no block, no counters.
          if (allocation.size.count > 0) {
            blocks[id] = allocator.malloc(allocation.size.count, allocation.stream);
            if (blocks[id] == no_block) {
              timeline.out_of_memory_event = static_cast<std::int32_t>(i);
              timeline.out_of_memory_request = allocation.size.count;
              break;
            }
            timeline.block_bytes[id] = allocator.block_bytes(blocks[id]);
            timeline.addresses[id] = allocator.address(blocks[id]);
          }
        } else if (blocks[id] != no_block) {
          allocator.free(blocks[id]);
          blocks[id] = no_block;
        }
      }
      timeline.samples.push_back(
          {all.requested_bytes.current, all.allocated_bytes.current, all.reserved_bytes.current});
    }
    timeline.segments = all.segment.current;
    timeline.retries = allocator.stats().num_alloc_retries;
    return timeline;
  });
}

}  // namespace memplan
