// The bytes of every allocation at a batch that may not have been recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/frontends/recording/recording.h"

namespace memplan::recording {

struct BatchSizes {
  std::vector<std::int64_t> bytes;  ///< per allocation
  std::int64_t open = 0;            ///< allocations whose recorded sizes lie on no line: a library chose them by size
  std::int64_t most = 0;            ///< bytes by which those that are alive together may be wrong
};

/// A recorded batch has the sizes that were recorded. At others every allocation follows the line through its first two
/// sizes, if all further recorded ones lie on it; else it is drawn between its nearest neighbours.
/// Failure(input) where that makes no size.
BatchSizes sizes_at(const Program& program, std::int64_t batch);

}  // namespace memplan::recording
