#include "estimators/runtime/torch/aten/cudnn_rule_sizes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "estimators/base/error.h"
#include "estimators/runtime/torch/aten/cudnn_copies.h"
#include "estimators/runtime/torch/aten/cudnn_engine_tables.h"
#include "estimators/runtime/torch/aten/cudnn_persistent.h"
#include "estimators/runtime/torch/aten/cudnn_stream_k.h"

namespace memplan::cudnn_rules {

namespace {

/// Rows of the table: of persistent engines, whose kinds name a tile in place of a row.
constexpr int persistent_copies(std::int64_t element) { return element == 4 ? 7 : 0; }

/// How many tiles persistent engines of this letter have; 0: the letter is none of theirs.
constexpr int tiles_of_engines(char letter) {
  if (letter == 'X' || letter == 'Y') return persistent_tiles;
  return letter == 'P' || letter == 'Q' ? stream_k_tiles : 0;
}

/// Bytes of tables that engines put behind the copies, for each group at work.
constexpr std::array<std::int64_t, 5> constants{0, 131, 128, 159, 131 + 2359416};
/// After the constants: a table with so many bytes for each position, in whole lines of 128 bytes.
constexpr int position_table = static_cast<int>(constants.size());
/// After that: the table of an engine for the data's gradient, with an entry for each position of the kernel and of the
/// input, whatever the groups; then a table of positions with a head.
constexpr int gradient_table = position_table + 1, position_table_and_head = gradient_table + 1;
constexpr std::int64_t head_lines = 17;
constexpr std::int64_t kernel_entry = 16, input_entry = 4, gradient_table_head = 28;

/// Rows and columns of the weight's gradient that one block of threads computes.
constexpr std::array<std::pair<std::int64_t, std::int64_t>, 8> tile_sizes{
    {{128, 128}, {256, 128}, {128, 256}, {128, 64}, {64, 128}, {64, 64}, {256, 64}, {64, 256}}};

/// Rows and columns of a block of engines that split the matrix product and add the parts up: both are one of these, or
/// the pair is one of the small ones, which follow.
constexpr std::array<std::int64_t, 4> block_sides{32, 64, 128, 256};
constexpr std::array<std::pair<std::int64_t, std::int64_t>, 3> small_blocks{{{32, 16}, {16, 64}, {64, 16}}};
constexpr int square_blocks = static_cast<int>(block_sides.size() * block_sides.size());
constexpr int block_sizes = square_blocks + static_cast<int>(small_blocks.size());

std::int64_t tiles_of(int row, const Copies& c, const Sizes& s) {
  const auto [rows, columns] = tile_sizes[static_cast<std::size_t>(row)];
  return checked_mul(pieces(c.outputs, rows), pieces(checked_mul(c.channels, s.kernel), columns));
}

std::pair<std::int64_t, std::int64_t> block_size(int row) {
  if (row >= square_blocks) return small_blocks[static_cast<std::size_t>(row - square_blocks)];
  const auto side = [](int i) { return block_sides[static_cast<std::size_t>(i)]; };
  const int count = static_cast<int>(block_sides.size());
  return {side(row / count), side(row % count)};
}

/// Blocks of the whole matrix product; `merged`: the groups are one product, whose columns go by positions of the
/// kernel.
std::int64_t blocks_of(int row, const Copies& c, const Sizes& s, bool merged) {
  const auto [height, width] = block_size(row);
  if (merged) return product({pieces(checked_mul(c.outputs, s.groups), height), pieces(c.channels, width), s.kernel});
  const MatrixProduct m = matrix_product(s, c.channels, c.outputs);
  return product({pieces(m.rows, height), pieces(checked_mul(m.columns, m.times), width), c.groups});
}

/// Buffers for the partial sums of every block of the matrix product, and counters for their parts.
std::int64_t buffered(int row, std::int64_t buffers, std::int64_t blocks) {
  const auto [height, width] = block_size(row);
  return product({blocks, accumulator, checked_add(checked_mul(buffers, height * width), buffers + 1)});
}

std::int64_t behind_copies(int row, const Sizes& s) {
  if (row == gradient_table)
    return rounded_up(checked_add(checked_add(checked_mul(kernel_entry, s.kernel), gradient_table_head),
                                  checked_mul(input_entry, checked_add(s.in, s.sides))),
                      table_line);
  if (row < position_table) return constants[static_cast<std::size_t>(row)];
  return position_bytes(row == position_table_and_head ? head_lines : 0, s);
}

/// `eighths` of a power of two, times `of`.
std::int64_t roughly(std::int64_t eighths, double of) {
  const double bytes = std::exp2(static_cast<double>(eighths) / 8) * of;
  if (!(bytes < 0x1p62)) fail_input("a size overflows 64 bits", {}, "check the dimensions given");
  return std::llround(bytes);
}

double tensors(const Sizes& s) {
  return static_cast<double>(s.element) *
         (static_cast<double>(s.batch) * static_cast<double>(s.in) * static_cast<double>(s.channels) +
          static_cast<double>(s.batch) * static_cast<double>(s.out) * static_cast<double>(s.outputs) +
          static_cast<double>(s.outputs) * static_cast<double>(s.group_channels) * static_cast<double>(s.kernel));
}

/// How many rows the table has that a kind's detail is of.
int details_of(char letter) {
  switch (letter) {
    case 'C':
      return position_table_and_head + 1;
    case 'T':
      return static_cast<int>(tile_sizes.size());
    case 'U':
    case 'G':
      return block_sizes;
    case 'X':
    case 'Y':
      return persistent_clusters;
    case 'P':
    case 'Q':
      return stream_k_clusters;
    default:
      return std::max(1, own_tables(letter));
  }
}

int small_number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(ErrorKind::internal, "data/cudnn/rules.txt: not a number", std::string(text.substr(0, 40)));
  return value;
}

}  // namespace

Sizes sizes_of(const ConvProblem& p, ConvPass pass) {
  Sizes s{};
  s.batch = p.input[0], s.channels = p.input[1], s.outputs = p.weight[0], s.groups = p.groups;
  s.group_channels = s.channels / s.groups, s.group_outputs = s.outputs / s.groups;
  s.in = s.kernel = s.out = 1;
  s.sides = 0;
  for (int d = 2; d < static_cast<int>(p.input.size()); ++d) {
    s.in = checked_mul(s.in, p.input[d]);
    s.sides = checked_add(s.sides, p.input[d]);
    s.kernel = checked_mul(s.kernel, p.weight[d]);
    s.out = checked_mul(s.out, p.output[d]);
  }
  s.out_rows = p.output[2];
  s.element = p.dtype == DType::float32 ? 4 : 2;
  s.bfloat16 = p.dtype == DType::bfloat16;
  s.pass = pass;
  s.channels_last = p.channels_last;
  return s;
}

Kind kind_of(std::string_view text) {
  Kind out;
  if (text.empty()) fail(ErrorKind::internal, "data/cudnn/rules.txt: an empty kind");
  out.letter = text[0];
  text.remove_prefix(1);
  const auto dot = text.find('.');
  if (!text.empty()) out.copy = small_number(text.substr(0, dot));
  if (dot != text.npos) out.detail = small_number(text.substr(dot + 1));
  const int tiles = tiles_of_engines(out.letter), copies = tiles > 0 ? tiles : copy_kinds;
  if (out.copy < 0 || out.copy >= copies || out.detail < 0 || out.detail >= details_of(out.letter))
    fail(ErrorKind::internal, "data/cudnn/rules.txt: no such kind");
  return out;
}

std::int64_t seldom_more_than(const Sizes& s) {
  std::int64_t largest = 0;
  for (int row = 0; row < copy_kinds; ++row) largest = std::max(largest, copies_of(row, s).bytes);
  return checked_add(checked_mul(largest, 4), std::int64_t{64} << 20);
}

MatrixProduct matrix_product(const Sizes& s, std::int64_t channels, std::int64_t outputs) {
  if (s.pass == ConvPass::forward) return {checked_mul(s.batch, s.out), outputs, 1};
  if (s.pass == ConvPass::data_gradient) return {checked_mul(s.batch, s.in), channels, 1};
  return {outputs, channels, s.kernel};
}

std::int64_t depth_steps(const Sizes& s) {
  constexpr std::int64_t step_bytes = 128;
  const std::int64_t depth = step_bytes / s.element;
  if (s.pass == ConvPass::weight_gradient) return pieces(checked_mul(s.batch, s.out), depth);
  const bool forward = s.pass == ConvPass::forward;
  return checked_mul(s.kernel, pieces(forward ? s.group_channels : s.group_outputs, depth));
}

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return checked_mul(pieces(value, multiple), multiple);
}

std::int64_t pieces(std::int64_t value, std::int64_t size) { return value / size + (value % size ? 1 : 0); }

std::int64_t largest_table() { return *std::max_element(constants.begin(), constants.end()); }

std::int64_t bytes_of_kind(const Kind& kind, std::int64_t amount, const Sizes& s) {
  if (kind.letter == 'Z' || kind.letter == 'N') return 0;
  if (kind.letter == 'K') return roughly(amount, 1);
  if (kind.letter == 'O') return roughly(amount, tensors(s));
  if (kind.letter == 'J') return product({8, accumulator, s.kernel, s.batch, rounded_up(s.channels, 32)});
  const bool persistent = tiles_of_engines(kind.letter) > 0;
  const Copies c = copies_of(persistent ? persistent_copies(s.element) : kind.copy, s);
  const std::int64_t sums = product({c.outputs, c.channels, s.kernel, c.groups, accumulator});
  if (kind.letter == 'R') return checked_add(c.bytes, roughly(amount, static_cast<double>(sums)));
  const std::int64_t copied = checked_add(c.bytes, c.aligned);
  if (kind.letter == 'D') return checked_add(copied, amount);
  if (own_tables(kind.letter) > 0) return checked_add(copied, own_table_bytes(kind.letter, kind.detail, c, s));
  if (kind.letter == 'P' || kind.letter == 'Q')
    return checked_add(copied, stream_k_bytes({kind.copy, kind.detail, kind.letter == 'P'}, s));
  if (persistent) return checked_add(copied, persistent_bytes({kind.copy, kind.detail, kind.letter == 'X'}, amount, s));
  if (kind.letter == 'C')
    return checked_add(copied,
                       checked_mul(behind_copies(kind.detail, s), kind.detail == gradient_table ? 1 : c.tables));
  if (kind.letter == 'U' || kind.letter == 'G') {
    const bool merged = kind.letter == 'G';
    return checked_add(checked_add(copied, constants[3] * (merged ? 1 : c.tables)),
                       buffered(kind.detail, amount, blocks_of(kind.detail, c, s, merged)));
  }
  const std::int64_t barrier = checked_add(copied, constants[2] * c.tables);
  if (kind.letter == 'S') return checked_add(barrier, checked_mul(amount, sums));
  return checked_add(barrier, product({tiles_of(kind.detail, c, s), c.tables, 4}));
}

}  // namespace memplan::cudnn_rules
