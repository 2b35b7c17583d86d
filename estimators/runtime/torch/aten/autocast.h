// Autocast's op lists and casts (aten/src/ATen/autocast_mode.{h,cpp} of PyTorch 2.11).
#pragma once

#include "estimators/runtime/torch/aten/registry.h"

namespace memplan {

/// Marks the rows that autocast treats.
void apply_autocast_lists(Registry& table);

/// Casts the tensors among the arguments as the row's policy says; casts of fp32 leaves that want a gradient are
/// cached until the context ends.
void cast_arguments(Run& run, const Row& row, Args& args);

/// autocast's cached_cast of one tensor.
Tensor cached_cast(Run& run, const Tensor& t, DType dtype);

}  // namespace memplan
