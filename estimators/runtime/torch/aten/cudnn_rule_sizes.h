// How many bytes each kind of cuDNN's workspaces has, as a function of the convolution's sizes.
#pragma once

#include <cstdint>
#include <string_view>

#include "estimators/runtime/torch/aten/cudnn_workspace.h"

namespace memplan::cudnn_rules {

inline constexpr std::int64_t accumulator = 4;   ///< bytes of fp32, and of a counter
inline constexpr std::int64_t table_line = 128;  ///< tables fill whole ones

/// A convolution as its engines see it.
struct Sizes {
  std::int64_t batch, channels, outputs, groups;
  std::int64_t group_channels, group_outputs;  ///< of one group
  std::int64_t in, kernel, out;                ///< positions: products of the spatial sizes
  std::int64_t sides;                          ///< the sum of the input's spatial sizes
  std::int64_t out_rows;                       ///< the first spatial size of the result
  std::int64_t element;                        ///< bytes
  bool bfloat16;
  ConvPass pass;
  bool channels_last;
};
Sizes sizes_of(const ConvProblem& problem, ConvPass pass);

/// A kind of workspace as the rules write it: a letter, and rows of the tables in the .cpp file.
///
///     Z  nothing                               N  cuDNN has no engine
///     C  copies of tensors, and a constant or a table of positions
///     S  copies, and `amount` partial sums of the weight's gradient
///     T  copies, and a counter for each tile of the weight's gradient
///     U  copies, and `amount` buffers for each block of the matrix product
///     G  the same where all groups are one matrix product
///     W  copies, and the weight as it is and transformed (Winograd, kernels of 3 x 3)
///     H  copies, and an offset for each element of an output's weight
///     I  copies, a table of the result's positions and one of its tiles
///     V  copies, and a table of the tiles of the weight's gradient
///     E  copies, a table of the result's rows and one of the tiles of the weight's gradient
///     A  copies, and the weight's gradient in the type of the tensors
///     J  fp32 sums of the weight's gradient for each image (depthwise convolutions)
///     D  copies, and `amount` bytes, whatever the convolution
///     X  copies, and the tiles that the blocks of a persistent engine share (cudnn_persistent.h)
///     Y  copies, and `amount` partial sums of each tile of a persistent engine
///     P  copies, and the tiles that the clusters of one of Hopper's engines share (cudnn_stream_k.h)
///     Q  the same engines where nothing is shared
///
/// Of the others only the rough size is known, and `amount` is in eighths of a power of two: R is copies and so many
/// times the weight in fp32, K is bytes, O is so many times the three tensors.
struct Kind {
  char letter = 'Z';
  int copy = 0;    ///< row of the table of copies (cudnn_copies.h); of a persistent engine its tile
  int detail = 0;  ///< row of the table of constants, tiles, blocks or clusters
};
Kind kind_of(std::string_view text);

/// Four times the largest copies of any kind and 64 MiB: of a million answers of cuDNN 9.19 for random convolutions,
/// fewer than one in a thousand is above it.
std::int64_t seldom_more_than(const Sizes& sizes);

/// Of the tables that engines put behind copies, whatever the convolution.
std::int64_t largest_table();

/// The matrix product that a pass is: rows by columns, of the weight's gradient once for each position of the kernel.
struct MatrixProduct {
  std::int64_t rows, columns, times;
};
MatrixProduct matrix_product(const Sizes& sizes, std::int64_t channels, std::int64_t outputs);

/// Steps of a persistent engine through the depth of the product of one group.
std::int64_t depth_steps(const Sizes& sizes);

/// The smallest multiple that is not below `value`.
std::int64_t rounded_up(std::int64_t value, std::int64_t multiple);

/// How many pieces of `size` cover `value`.
std::int64_t pieces(std::int64_t value, std::int64_t size);

std::int64_t bytes_of_kind(const Kind& kind, std::int64_t amount, const Sizes& sizes);

}  // namespace memplan::cudnn_rules
