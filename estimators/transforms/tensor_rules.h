// What tensor parallelism knows of single ops.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/aten/tensor.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// "add" of "aten::add.Tensor".
std::string_view base_name(std::string_view op);

/// Ops whose result has the shape that their operands have together, element by element.
bool keeps_shape(std::string_view base_name);

/// The heads that attention works on must be divisible, whatever else could stay whole. Failure(usage) names the
/// module.
void check_heads(const Tape& tape, const std::vector<std::optional<Dims>>& shapes, std::int64_t ranks);

}  // namespace memplan
