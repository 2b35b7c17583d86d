// The same model with fewer of its equal blocks, for those who ask how something grows with the depth.
#pragma once

#include <cstdint>
#include <optional>

#include "estimators/tape/tape.h"

namespace memplan {

/// The longest run of neighbouring blocks (strategies/blocks.h, outermost ones) that make the same calls with
/// parameters of the same sizes. `blocks` counts the model's blocks, those of the run among them; 0 and 0 where there
/// is no such run.
struct Depth {
  std::int64_t blocks = 0, run = 0;
};
Depth depth_of(const Tape& tape);

/// The tape with `blocks` blocks in place of depth_of(tape).blocks: the last ones of the run are left out, and what
/// came after the last of them takes the results of the last one that is left. The tape must not have checkpoints yet.
/// None where something else looks into the blocks that would go, or where the run is too short.
std::optional<Tape> with_blocks(const Tape& tape, std::int64_t blocks);

}  // namespace memplan
