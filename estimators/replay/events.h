// The one loop that sends a schedule's requests through an allocator.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/runtime/allocator.h"
#include "estimators/schedule/schedule.h"

namespace memplan {

/// What one event of the schedule came to.
struct Replayed {
  std::int32_t event = 0;        ///< index into Schedule::events
  std::int32_t allocation = -1;  ///< index into Schedule::allocations; -1: the cache was emptied
  Placement placed;              ///< of an allocation that was served; no_block otherwise
  std::int64_t refused = 0;      ///< bytes of a request that could not be placed: nothing is replayed after it
};

/// Shows every event to `look` once the allocator has served it.
template <class Look>
void replay_events(const Schedule& schedule, Allocator& allocator, Look look) {
  std::vector<BlockId> blocks(schedule.allocations.size(), no_block);
  for (std::size_t i = 0; i < schedule.events.size(); ++i) {
    const Event& event = schedule.events[i];
    Replayed replayed{static_cast<std::int32_t>(i), event.allocation, {}, 0};
    if (event.kind == Event::Kind::empty_cache) {
      allocator.empty_cache();
    } else {
      const auto id = static_cast<std::size_t>(event.allocation);
      if (id >= blocks.size()) fail(ErrorKind::internal, "an event names an allocation that does not exist");
      const Allocation& allocation = schedule.allocations[id];
      if (event.kind == Event::Kind::alloc) {
        // A request of no bytes gets a null pointer: no block, no counters.
        if (allocation.size.count > 0) {
          replayed.placed = allocator.allocate({allocation.size.count, allocation.stream, event.allocation});
          blocks[id] = replayed.placed.block;
          if (blocks[id] == no_block) replayed.refused = allocation.size.count;
        }
      } else if (blocks[id] != no_block) {
        allocator.free(blocks[id]);
        blocks[id] = no_block;
      }
    }
    look(replayed);
    if (replayed.refused > 0) return;
  }
}

}  // namespace memplan
