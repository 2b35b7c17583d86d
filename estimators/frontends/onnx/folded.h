// Tensors that an exporter's optimizer worked out ahead of the run. The program makes them in every forward pass.
#pragma once

#include <string_view>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Names of what a stored tensor was worked out from, where the optimizer says so (onnxscript does since 0.3).
std::vector<std::string_view> folded_from(const Graph& graph, GraphValueId id);

/// The ATen op of a call with such a name, "aten::add.Tensor" of "add_5", where its result has the sizes of its input
/// and its other input, if any, is a number. Null for all others.
const char* elementwise_op(std::string_view name);

}  // namespace memplan::onnx_format
