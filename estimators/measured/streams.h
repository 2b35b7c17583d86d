// Two runs as lists of allocations with their lives, and which of one are those of the other.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/measured/measurement.h"
#include "estimators/schedule/schedule.h"

namespace memplan {

/// One allocation of a run. Requests of no bytes are left out: PyTorch's allocator never sees them.
struct Life {
  std::int64_t bytes = 0;
  std::int32_t id = -1;       ///< predicted: into Schedule::allocations; measured: -1
  std::int32_t born_op = -1;  ///< into the ops of its run
  std::int32_t died_op = -1;
  std::int64_t died_before = -1;  ///< it is freed before the allocation of this number; -1: alive at the end
};

std::vector<Life> lives_of(const Schedule& schedule);
std::vector<Life> lives_of(const Measurement& measured);

/// For each measured life the predicted one, or -1. In order, never crossing; where sizes differ, the shortest run of
/// insertions after which several sizes agree again.
std::vector<std::int32_t> partners(const std::vector<Life>& predicted, const std::vector<Life>& measured);

/// The numbers of the lives that are alive when the sum of bytes is highest (the first time it is).
std::vector<std::int32_t> alive_at_peak(const std::vector<Life>& lives);

}  // namespace memplan
