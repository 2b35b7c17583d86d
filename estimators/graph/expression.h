// Sizes that an exporter wrote as text: "2*batch + 1", "floor(seq/2)".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "estimators/graph/dims.h"

namespace memplan {

std::string lower_case(std::string_view text);

/// The value of an expression of Python's operators, floor, ceil, mod, min and max over `symbols`; none where it has an
/// unknown name or is no such expression.
std::optional<double> value_of_expression(std::string_view text, const Symbols& symbols);

}  // namespace memplan
