// Autocast's casts (aten/src/ATen/autocast_mode.{h,cpp}); which ops they stand before is a fact of a version
// (profile.h).
#pragma once

#include "estimators/runtime/torch/aten/op_table.h"

namespace memplan {

struct AutocastLists;

/// Marks the rows that autocast treats.
void apply_autocast_lists(OpTable& table, const AutocastLists& lists);

/// Casts the tensors among the arguments as the row's policy says; casts of fp32 leaves that want a gradient are
/// cached until the context ends.
void cast_arguments(Run& run, const Row& row, Args& args);

/// autocast's cached_cast of one tensor.
Tensor cached_cast(Run& run, const Tensor& t, DType dtype);

}  // namespace memplan
