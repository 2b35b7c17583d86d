#include "estimators/replay/replay.h"

#include "estimators/pipeline.h"
#include "estimators/replay/events.h"
#include "estimators/runtime/runtime.h"

namespace memplan {

Timeline replay(const Schedule& schedule, Allocator& allocator) {
  Timeline timeline;
  timeline.samples.reserve(schedule.events.size());
  timeline.block_bytes.assign(schedule.allocations.size(), 0);
  timeline.addresses.assign(schedule.allocations.size(), 0);
  replay_events(schedule, allocator, [&](const Replayed& e) {
    if (e.refused > 0) {
      timeline.out_of_memory_event = e.event;
      timeline.out_of_memory_request = e.refused;
      return;
    }
    if (e.placed.block != no_block) {
      timeline.block_bytes[static_cast<std::size_t>(e.allocation)] = e.placed.bytes;
      timeline.addresses[static_cast<std::size_t>(e.allocation)] = e.placed.address;
    }
    const Usage now = allocator.usage();
    timeline.samples.push_back({now.requested, now.allocated, now.reserved});
  });
  const AllocatorTotals totals = allocator.totals();
  timeline.segments = totals.segments;
  timeline.retries = totals.retries;
  return timeline;
}

Result<Timeline> replay(const Schedule& schedule, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return replay(schedule, *runtime_of(setup).allocator(schedule, setup, device)); });
}

Result<Timeline> replay_unlimited(const Schedule& schedule, const TrainingSetup& setup, const Device& device) {
  return catching([&] {
    Device unlimited = device;
    unlimited.total = Bytes::gib(1LL << 30);
    TrainingSetup free = setup;
    free.ort.memory_limit.reset();
    Timeline timeline = replay(schedule, *runtime_of(free).allocator(schedule, free, unlimited));
    if (timeline.out_of_memory_event) fail_input("the run needs more than 1 EiB", {}, "check the dimensions given");
    return timeline;
  });
}

}  // namespace memplan
