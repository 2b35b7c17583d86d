// Where everything lies: the segments and blocks of the allocator at one event and at the end, and what it asked of the
// driver in between. Replayed again on demand, because only arena maps and memory snapshots want it.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/facts/device.h"
#include "estimators/runtime/allocator.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"

namespace memplan {

struct MappedBlock {
  std::uint64_t address = 0;
  std::int64_t bytes = 0, requested = 0;
  std::int32_t allocation = -1;  ///< index into Schedule::allocations; -1: free
};

struct MappedSegment {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int32_t stream = 0;
  bool small = false, expandable = false;
  std::vector<MappedBlock> blocks;  ///< by address, without gaps
};

/// A driver call, made while `event` was replayed.
struct DriverCall {
  std::int32_t event = 0;
  SegmentEvent call;
};

struct MemoryMap {
  std::vector<MappedSegment> at_event, at_end;  ///< by address
  std::vector<DriverCall> driver;
  std::int64_t refused = 0;  ///< bytes of the request that could not be placed; the replay stops there
};

/// Replays the schedule and keeps the map right after `event` (an index into Schedule::events).
Result<MemoryMap> map_memory(const Schedule& schedule, const TrainingSetup& setup, const Device& device,
                             std::int32_t event);

}  // namespace memplan
