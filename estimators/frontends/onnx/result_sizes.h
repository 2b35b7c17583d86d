// What sizes of arguments and results go together.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "estimators/frontends/onnx/inferred.h"

namespace memplan::onnx_format {

/// Whether a call of tensors `x`, at least one, can give a result of sizes `y`; none for ops where the sizes do not
/// tell.
std::optional<bool> gives(std::string_view op, const std::vector<Sizes>& x, const Sizes& y);

/// Calls whose first list of numbers says the sizes of the result.
bool gives_sizes(std::string_view op);

}  // namespace memplan::onnx_format
