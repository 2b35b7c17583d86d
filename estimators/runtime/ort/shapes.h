// What ONNX Runtime knows of shapes before it runs anything: numbers, names, or nothing.
//
// Its planner lets one buffer serve two values only where their shapes are the same by this knowledge. It comes from
// ONNX's inference, node by node, which does not follow contents (a Reshape by a computed Shape gives nothing), and
// from the shapes that the file states.
#pragma once

#include <optional>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::ort {

/// A Dim with neither number nor name is unknown, and equal to none.
using KnownShape = std::optional<std::vector<Dim>>;

/// By value of the graph, whose nodes are in order.
std::vector<KnownShape> known_shapes(const Graph& graph, std::int64_t opset);

/// The planner's SameShape: every dimension has the same number or the same name.
bool same_shape(const KnownShape& a, const KnownShape& b);

}  // namespace memplan::ort
