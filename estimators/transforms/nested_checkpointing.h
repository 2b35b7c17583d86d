// Checkpoints inside of checkpoints, where one level of them keeps too much: Revolve (Griewank and Walther, ACM TOMS
// 26(1), 2000), which reverses a chain of equal steps with the fewest repetitions for a number of states that may be
// stored.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Reversing `steps` steps with `states` stored at a time, the first one included.
struct RevolveCost {
  std::int64_t repetitions = 0;  ///< r: the most often that a step runs without being recorded
  std::int64_t advances = 0;     ///< t: steps run without being recorded; each runs once more to be recorded
};

/// The smallest r with binom(n + r, n) >= l, and t = r l - binom(n + r, n + 1). Failure(usage) below one step or state.
RevolveCost revolve_cost(std::int64_t steps, std::int64_t states);

/// Checkpointed stretches over these blocks, each followed by those inside of it, that run as Revolve does: a stretch
/// stores its input, and while it runs again, those inside of it store theirs. Blocks in no stretch are recorded as
/// they run: the last one of each stretch, and of the model unless `last_too`.
std::vector<CheckpointRegion> revolve_stretches(const std::vector<CheckpointRegion>& blocks, std::int64_t states,
                                                bool last_too);

}  // namespace memplan
