// Workspaces of cuDNN's persistent engines for Hopper (compute capability 9.0): their clusters of blocks take one tile
// of the matrix product after the other, and share those of the last wave where that wave is no more than half full.
#pragma once

#include <cstdint>

#include "estimators/runtime/torch/aten/cudnn_rule_sizes.h"

namespace memplan::cudnn_rules {

inline constexpr int stream_k_tiles = 14;     ///< rows of a table in the .cpp file
inline constexpr int stream_k_clusters = 64;  ///< 1 to 8 blocks high, and as many wide

/// What an engine's knobs say (CUDNN_KNOB_TYPE_TILE_SIZE, TILE_CGA_M and _N, and knob 25).
struct StreamKEngine {
  int tile;
  int cluster;  ///< eight times its height in blocks less one, plus its width less one
  bool shared;  ///< clusters may share the tiles of the last wave (stream-K)
};

/// Bytes behind the copies: a counter where there are more than two waves, and fp32 sums of the parts of shared tiles
/// with their barriers. The order of the work is that of CUTLASS's stream-K scheduler; what a part must have at least
/// was read off cuDNN's answers. They give the bytes that cuDNN 9.19 says for an H100 in 98 % of 105,000 random
/// convolutions without groups for which its heuristics choose these engines.
std::int64_t stream_k_bytes(const StreamKEngine& engine, const Sizes& sizes);

}  // namespace memplan::cudnn_rules
