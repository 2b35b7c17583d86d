#include "estimators/runtime/torch/aten/cudnn_persistent.h"

#include <algorithm>

#include "estimators/base/error.h"

namespace memplan::cudnn_rules {

namespace {

constexpr std::int64_t multiprocessors = 148;  ///< of the B200
constexpr std::int64_t head = 64;              ///< bytes before the counters, which fill whole lines
constexpr std::int64_t fewest_steps = 8;       ///< that a block does at a tile that it shares
constexpr std::int64_t separate_from = 4;      ///< so many parts have a buffer each; fewer add up in one
constexpr std::int64_t high_cluster = 4;       ///< tiles: clusters so high do not fill the last of the chip

struct TileGrid {
  std::int64_t rows, columns;  ///< of a tile
  std::int64_t high, wide;     ///< tiles of a cluster
  bool pairs;                  ///< two blocks work at one tile
  std::int64_t tiles, steps;   ///< of the product, whole clusters; steps of each tile's depth
};

TileGrid grid_of(const PersistentEngine& e, const Sizes& s) {
  TileGrid g{};
  g.rows = std::int64_t{64} << (e.tile / 3), g.columns = std::int64_t{64} << (e.tile % 3);
  g.high = std::int64_t{1} << (e.cluster / 4), g.wide = std::int64_t{1} << (e.cluster % 4);
  g.pairs = g.rows == 256 || (g.rows == 128 && g.high > 1);
  if (g.pairs) g.high = std::max<std::int64_t>(g.high / 2, 1);
  const MatrixProduct m = matrix_product(s, s.group_channels, s.group_outputs);
  const std::int64_t wide = checked_mul(pieces(m.columns, g.columns), m.times);
  g.tiles = checked_mul(rounded_up(pieces(m.rows, g.rows), g.high), rounded_up(wide, g.wide));
  g.steps = depth_steps(s);
  return g;
}

/// Whole clusters that are at work at once, in tiles.
std::int64_t full_clusters(const TileGrid& g) {
  const std::int64_t cluster = g.high * g.wide;
  return std::max<std::int64_t>(multiprocessors / (g.pairs ? 2 : 1) / cluster, 1) * cluster;
}

/// Tiles that are at work at once.
std::int64_t wave_of(const TileGrid& g) {
  return g.pairs && g.high == high_cluster ? full_clusters(g) : multiprocessors / (g.pairs ? 2 : 1);
}

/// Tiles of the last waves, which the blocks share.
std::int64_t shared_tiles(const TileGrid& g) {
  const std::int64_t wave = wave_of(g), clusters = full_clusters(g);
  if (g.tiles % wave == 0 || g.steps <= fewest_steps) return 0;
  const std::int64_t waves = g.tiles / wave;
  const std::int64_t out = g.tiles - (waves > 1 ? rounded_up((waves - 1) * wave, g.high * g.wide) : 0);
  return out == 2 * clusters ? clusters : out;
}

}  // namespace

std::int64_t persistent_bytes(const PersistentEngine& engine, std::int64_t parts, const Sizes& sizes) {
  const TileGrid g = grid_of(engine, sizes);
  std::int64_t tiles = g.tiles, buffers = std::min(parts, g.steps);
  if (engine.shared) {
    tiles = shared_tiles(g);
    const std::int64_t each = tiles ? std::min(wave_of(g), checked_mul(tiles, g.steps) / fewest_steps) / tiles : 0;
    buffers = each >= separate_from ? each + 2 : 1;
  } else if (buffers <= 1) {
    return 0;
  } else if (buffers < separate_from) {
    buffers = 1;
  }
  if (tiles <= 0) return 0;
  const std::int64_t sums = checked_mul(checked_mul(buffers, tiles), g.rows * g.columns * accumulator);
  return checked_add(sums, head + rounded_up(checked_mul(tiles, accumulator * (g.pairs ? 2 : 1)), table_line));
}

}  // namespace memplan::cudnn_rules
