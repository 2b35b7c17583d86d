// Bytes over the events of a schedule, after replay through an allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan {

/// Current values after one event.
struct Sample {
  std::int64_t requested = 0, allocated = 0, reserved = 0;
};

struct Timeline {
  std::vector<Sample> samples;                      ///< one per schedule event
  std::vector<std::int64_t> block_bytes;            ///< per allocation: the block handed out (rounded, maybe not split)
  std::vector<std::uint64_t> addresses;             ///< per allocation, for arena maps and traces
  std::int64_t segments = 0;                        ///< segments at the end
  std::int64_t retries = 0;                         ///< num_alloc_retries
  std::optional<std::int32_t> out_of_memory_event;  ///< first event that could not be served; replay stops there
  std::int64_t out_of_memory_request = 0;
};

}  // namespace memplan
