// What the exporter's optimizer merged and folded away in a file that still says, node by node, which ATen call it came
// from: put back into the graph.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Equal parameters that were merged become parameters of their own again, weights that were transposed in the file
/// get their Transpose back, and batch norms that were folded into the layer before come out of it. None when the
/// graph has nothing of the kind. `program` is the graph's own.
std::optional<Graph> undo_folding(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
