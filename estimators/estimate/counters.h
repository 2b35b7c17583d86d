// What PyTorch counts of a run.
#pragma once

#include <array>

#include "estimators/base/bytes.h"

namespace memplan {

/// PyTorch's counters (torch.cuda.memory_stats): peaks of one step.
struct Counters {
  Bytes requested;  ///< requested_bytes.all.peak: what the program asked for
  Bytes allocated;  ///< allocated_bytes.all.peak: blocks handed out
  Bytes reserved;   ///< reserved_bytes.all.peak: segments taken from the driver
  Bytes process;    ///< context + libraries + reserved: what nvidia-smi shows
  friend bool operator==(const Counters&, const Counters&) = default;
};

/// For what is done to each of them.
inline constexpr std::array each_counter{&Counters::requested, &Counters::allocated, &Counters::reserved,
                                         &Counters::process};

}  // namespace memplan
