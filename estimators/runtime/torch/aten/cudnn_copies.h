// Which tensors cuDNN's engines copy before they work, and how many bytes the copies have.
#pragma once

#include <cstdint>

#include "estimators/runtime/torch/aten/cudnn_rule_sizes.h"

namespace memplan::cudnn_rules {

inline constexpr int copy_kinds = 15;  ///< rows of the table, which tools/cudnn_workspaces/rules.py has as well

struct Copies {
  std::int64_t bytes = 0;          ///< of all copies
  std::int64_t aligned = 0;        ///< what their alignment adds; 0 without copies
  std::int64_t tables = 1;         ///< how many times the constants are there
  std::int64_t channels, outputs;  ///< of a group, padded
  std::int64_t groups;             ///< that are at work at once
};

/// `row`: of the table, less than copy_kinds.
Copies copies_of(int row, const Sizes& sizes);

std::int64_t product(std::initializer_list<std::int64_t> factors);  ///< throws where 64 bits do not hold it

}  // namespace memplan::cudnn_rules
