// The order of nodes: every value produced once, before it is read.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Checks that every value read is an input, an initializer, captured from an outer graph, or produced by exactly
/// one node, and puts the nodes into such an order (stable; a warning says when they were not). What a subgraph
/// captures counts as read by the node that holds it. A bound of a Clip that nothing produces becomes a number.
/// Failure(input) names the node and value at fault.
void put_in_order(Graph& graph, const std::unordered_set<GraphValueId>& captured, const Model& model,
                  std::vector<std::string>& warnings);

}  // namespace memplan::onnx_format
