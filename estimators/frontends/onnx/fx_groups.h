// Single calls by the exporter's text, in a file whose text as a whole is no longer complete.
#pragma once

#include <optional>
#include <vector>

#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

/// By node: the call that ends there, where the text tells all of it and every name in it is still a value of the
/// graph. Nodes of calls that cannot be told so are left to the patterns and to their ops.
std::vector<std::optional<Found>> match_fx_groups(const View& view, const Graph& graph);

}  // namespace memplan::onnx_format
