// The frame of a step that the program ran twice and the file has once.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Gives a node the reader's lines, where it has any.
void take_lines(GraphNode& node, const GraphNode& reader);

/// Puts a copy of `graph`'s node `n` into the module that `reader` is in. One of the same class runs the same line. One
/// around the node's module has the step in a line of its own, as `mask.to(x.dtype)` in each layer and once more around
/// them, unless the node rests on what its module stores: then that module was called once more. False elsewhere, and
/// of PyTorch's modules. `maker`: by value, -1 for none.
bool move_to_reader(GraphNode& copy, const GraphNode& reader, const Graph& graph,
                    const std::vector<std::int32_t>& maker, std::size_t n);

}  // namespace memplan::onnx_format
