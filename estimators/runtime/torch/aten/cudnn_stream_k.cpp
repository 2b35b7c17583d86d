#include "estimators/runtime/torch/aten/cudnn_stream_k.h"

#include <algorithm>
#include <array>
#include <utility>

#include "estimators/base/error.h"

namespace memplan::cudnn_rules {

namespace {

/// Rows and columns.
constexpr std::array<std::pair<std::int64_t, std::int64_t>, stream_k_tiles> tile_shapes{{{128, 128},
                                                                                         {128, 64},
                                                                                         {128, 32},
                                                                                         {256, 128},
                                                                                         {256, 64},
                                                                                         {64, 64},
                                                                                         {128, 256},
                                                                                         {64, 128},
                                                                                         {64, 32},
                                                                                         {64, 256},
                                                                                         {256, 32},
                                                                                         {64, 192},
                                                                                         {128, 192},
                                                                                         {256, 96}}};

/// Blocks of a wave, whatever the card: so many multiprocessors share a part of the chip.
constexpr std::int64_t at_once = 18;
constexpr std::int64_t barriers = 32;         ///< bytes before those of the tiles
constexpr std::int64_t slack = 127;           ///< for the address of what follows the copies
constexpr std::int64_t waves_by_counter = 2;  ///< more take their tiles by a counter
constexpr std::int64_t odd_from = 6;          ///< parts: of fewer, unless they are the most, there is an even number

/// Steps that make a part worth sharing: more of bfloat16, and of small tiles.
std::int64_t steps_worth_sharing(std::int64_t tile, const Sizes& s) {
  constexpr std::int64_t whole = 128 * 128;
  const std::int64_t of_type = s.element == 4 ? 8 : s.bfloat16 ? 32 : 4;
  return of_type * (4 + (tile < whole ? 1 : 0) + (tile < whole / 2 ? 1 : 0)) / 4;
}

/// Into how many parts each of `tiles` is split, if `most` blocks can work at one.
std::int64_t parts_of(std::int64_t most, std::int64_t steps, std::int64_t fewest) {
  std::int64_t parts = std::min(most, steps / fewest);
  if (parts < most && parts < odd_from && parts % 2 == 1) --parts;
  if (parts < 2) return 1;
  return pieces(steps, pieces(steps, parts));
}

/// Sums of pairs until one is left: of 9 parts 5 + 3 + 2 + 1.
std::int64_t pair_sums(std::int64_t parts) {
  std::int64_t out = 0;
  while (parts > 1) out += parts = pieces(parts, 2);
  return out;
}

}  // namespace

std::int64_t stream_k_bytes(const StreamKEngine& engine, const Sizes& sizes) {
  const auto [rows, columns] = tile_shapes[static_cast<std::size_t>(engine.tile)];
  const std::int64_t high = engine.cluster / 8 + 1, wide = engine.cluster % 8 + 1;
  const MatrixProduct m = matrix_product(sizes, sizes.group_channels, sizes.group_outputs);
  const std::int64_t across = checked_mul(pieces(m.columns, columns), m.times);
  const std::int64_t clusters = checked_mul(pieces(pieces(m.rows, rows), high), pieces(across, wide));
  const std::int64_t wave = std::max<std::int64_t>(at_once / (high * wide), 1);  // clusters
  const std::int64_t last = clusters % wave, tiles = last * high * wide;
  std::int64_t bytes = clusters > waves_by_counter * wave ? accumulator : 0;
  if (engine.shared && last > 0 && 2 * last <= wave) {
    const std::int64_t parts =
        parts_of(wave * high * wide / tiles, depth_steps(sizes), steps_worth_sharing(rows * columns, sizes));
    if (parts > 1)
      bytes += tiles * parts * rows * columns * accumulator + barriers + accumulator * tiles * pair_sums(parts);
  }
  return bytes > 0 ? bytes + slack : 0;
}

}  // namespace memplan::cudnn_rules
