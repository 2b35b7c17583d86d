// The counters of torch.cuda.memory_stats().
#pragma once

#include <algorithm>
#include <cstdint>

#include "estimators/base/bytes.h"

namespace memplan {

/// A current value with its peak and the sum of all increases ("allocated" in memory_stats; "freed" is the difference).
/// Failure(input) where one of them has no room in 64 bits.
struct Counter {
  std::int64_t current = 0, peak = 0, total = 0;

  void add(std::int64_t n) {
    current = checked_add(current, n);
    total = checked_add(total, n);
    peak = std::max(peak, current);
  }
  void subtract(std::int64_t n) { current -= n; }
  /// A net change counts as one increase or one decrease.
  void change(std::int64_t n) {
    if (n > 0)
      add(n);
    else
      subtract(-n);
  }
};

/// Counters of one pool; those named _bytes count bytes, the others blocks or segments.
struct PoolStats {
  Counter allocation, allocated_bytes;           ///< blocks handed out
  Counter active, active_bytes;                  ///< handed out or waiting for another stream
  Counter requested_bytes;                       ///< what the program asked for
  Counter segment, reserved_bytes;               ///< taken from the driver (expandable memory counts only as bytes)
  Counter inactive_split, inactive_split_bytes;  ///< free pieces of segments that are partly in use
};

struct AllocatorStats {
  PoolStats all, small_pool, large_pool;
  Counter oversize_allocations, oversize_segments;
  std::int64_t num_alloc_retries = 0, num_ooms = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0;
};

}  // namespace memplan
