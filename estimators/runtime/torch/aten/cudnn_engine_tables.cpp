#include "estimators/runtime/torch/aten/cudnn_engine_tables.h"

#include <algorithm>
#include <array>

namespace memplan::cudnn_rules {

namespace {

constexpr std::int64_t position_entry = 6;
constexpr std::int64_t table_alignment = 16;  ///< where there are several groups, of the table of each
constexpr std::int64_t table_head = 2303;     ///< before tables of positions and tiles
constexpr std::int64_t tile_entry = 4, tile_columns = 128;

/// Winograd's engine without fusion: the weight, the weight transformed to 4 x 4, and a value for each channel of the
/// result.
std::int64_t winograd(std::int64_t /*side*/, const Copies& /*c*/, const Sizes& s) {
  const bool forward = s.pass == ConvPass::forward;
  const std::int64_t from = forward ? s.group_channels : s.group_outputs;
  const std::int64_t to = forward ? s.group_outputs : s.group_channels;
  const std::int64_t transformed = product({16, rounded_up(from, 8), rounded_up(to, 32), accumulator});
  return checked_add(checked_add(product({9, from, to, accumulator}), transformed), checked_mul(to, accumulator));
}

/// An offset into the image for each element of an output's weight.
std::int64_t offsets(std::int64_t /*side*/, const Copies& /*c*/, const Sizes& s) {
  return product({4, s.group_channels, s.kernel});
}

/// An entry for each tile of the weight's gradient.
std::int64_t tile_table(std::int64_t /*side*/, const Copies& /*c*/, const Sizes& s) {
  return product({8, pieces(s.group_outputs, 32), pieces(checked_mul(s.group_channels, s.kernel), 32)});
}

/// For each row of the result the positions of the kernel and one more, and for each tile of the weight's gradient the
/// positions of the kernel.
std::int64_t row_table(std::int64_t side, const Copies& /*c*/, const Sizes& s) {
  const std::int64_t tiles =
      checked_mul(pieces(s.group_outputs, side), pieces(checked_mul(s.group_channels, s.kernel), tile_columns));
  const std::int64_t rows = product({position_entry, checked_add(s.kernel, 1), s.out_rows});
  return checked_add(checked_add(table_head + (s.kernel % 2 ? 0 : 2), rows), product({tile_entry, s.kernel, tiles}));
}

/// The positions of the result, and an entry for each of its tiles.
std::int64_t result_table(std::int64_t side, const Copies& /*c*/, const Sizes& s) {
  const std::int64_t tiles =
      checked_mul(pieces(checked_mul(s.batch, s.out), tile_columns), pieces(s.group_outputs, side));
  return checked_add(checked_add(position_bytes(0, s), table_head), checked_mul(tile_entry, tiles));
}

/// The weight's gradient in the type of the tensors, and counters of its tiles.
std::int64_t half_sums(std::int64_t side, const Copies& c, const Sizes& s) {
  const std::int64_t tiles = checked_mul(pieces(c.outputs, side), pieces(c.channels, side));
  const std::int64_t counters = checked_mul(s.kernel, checked_add(8, checked_mul(tile_entry, tiles)));
  return checked_add(checked_add(product({c.outputs, c.channels, s.kernel, s.element}), 127), counters);
}

struct OwnTable {
  char letter;
  int sizes;                          ///< of tiles, rows of a kind's name
  std::array<std::int64_t, 2> sides;  ///< of these tiles
  std::int64_t (*of_group)(std::int64_t side, const Copies& c, const Sizes& s);
};
constexpr std::array own{
    OwnTable{'W', 1, {}, winograd},           OwnTable{'H', 1, {}, offsets},
    OwnTable{'V', 1, {}, tile_table},         OwnTable{'E', 2, {64, 32}, row_table},
    OwnTable{'I', 2, {64, 32}, result_table}, OwnTable{'A', 2, {64, 128}, half_sums},
};

const OwnTable* table_of(char letter) {
  const auto it = std::ranges::find(own, letter, &OwnTable::letter);
  return it == own.end() ? nullptr : &*it;
}

}  // namespace

int own_tables(char letter) {
  const OwnTable* table = table_of(letter);
  return table ? table->sizes : 0;
}

std::int64_t position_bytes(std::int64_t head_lines, const Sizes& s) {
  const std::int64_t positions = s.pass == ConvPass::data_gradient ? s.in : s.out;
  return checked_mul(checked_mul(position_entry, positions) / table_line + 1 + head_lines, table_line);
}

std::int64_t own_table_bytes(char letter, int row, const Copies& c, const Sizes& s) {
  const OwnTable& table = *table_of(letter);
  const std::int64_t bytes = table.of_group(table.sides[static_cast<std::size_t>(row)], c, s);
  return checked_mul(s.groups > 1 ? rounded_up(bytes, table_alignment) : bytes, c.groups);
}

}  // namespace memplan::cudnn_rules
