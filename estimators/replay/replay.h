// Replays through an allocator of the caller's choice; pipeline.h and memory_map.h take the one of the setup's runtime.
#pragma once

#include "estimators/replay/memory_map.h"
#include "estimators/replay/timeline.h"
#include "estimators/runtime/allocator.h"
#include "estimators/schedule/schedule.h"

namespace memplan {

/// `allocator` is empty at first. Throws Failure where the schedule is malformed.
Timeline replay(const Schedule& schedule, Allocator& allocator);
MemoryMap map_memory(const Schedule& schedule, Allocator& allocator, std::int32_t event);

}  // namespace memplan
