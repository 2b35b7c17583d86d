// Tables and buffers that only one family of cuDNN's engines has, as functions of the convolution's sizes.
#pragma once

#include <cstdint>

#include "estimators/runtime/torch/aten/cudnn_copies.h"

namespace memplan::cudnn_rules {

/// How many sizes of tiles a kind of engine with a table of its own has; 0: the letter is not one of them.
int own_tables(char letter);

/// Bytes of a table of positions, in whole lines; after `head_lines` others.
std::int64_t position_bytes(std::int64_t head_lines, const Sizes& sizes);

/// What the engine has behind its copies, for all groups that are at work at once. The formulas give what cuDNN 9.19
/// says for seven cards. `letter` and `row` are those of the kind's name (cudnn_rule_sizes.h); own_tables(letter) is
/// above `row`.
std::int64_t own_table_bytes(char letter, int row, const Copies& copies, const Sizes& sizes);

}  // namespace memplan::cudnn_rules
