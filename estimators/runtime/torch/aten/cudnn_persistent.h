// Workspaces of cuDNN's persistent engines: their blocks of threads stay on their multiprocessors and take one tile of
// the matrix product after the other. Blackwell (compute capability 10.0) has them for all three passes.
#pragma once

#include <cstdint>

#include "estimators/runtime/torch/aten/cudnn_rule_sizes.h"

namespace memplan::cudnn_rules {

inline constexpr int persistent_tiles = 9;      ///< 64, 128 or 256 rows, and as many columns
inline constexpr int persistent_clusters = 16;  ///< 1, 2, 4 or 8 blocks high, and as many wide

/// What an engine's knobs say (CUDNN_KNOB_TYPE_TILE_M and _N, TILE_CGA_M and _N, STREAM_K).
struct PersistentEngine {
  int tile;     ///< three times 0, 1 or 2 for rows of 64, 128 or 256, plus the same for columns
  int cluster;  ///< four times the binary logarithm of its height in blocks, plus that of its width
  bool shared;  ///< blocks share tiles of the last wave (stream-K); else each tile is split into parts
};

/// Bytes behind the copies: fp32 sums of the tiles that several blocks work at, and their counters. The rules are those
/// of CUTLASS's stream-K scheduler; they give the bytes that cuDNN 9.19 says for a B200 in 97 % of 23,000 random
/// convolutions for which its heuristics split or share tiles. `parts`: how many each tile is split into, where tiles
/// are not shared.
std::int64_t persistent_bytes(const PersistentEngine& engine, std::int64_t parts, const Sizes& sizes);

}  // namespace memplan::cudnn_rules
