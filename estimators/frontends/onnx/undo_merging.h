// Equal calls that the exporter's optimizer merged, in a file that still says, node by node, which ATen call it came
// from: made apart again.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// A call's text names a value that no node makes, and its node reads what an equal call made, elsewhere or before: the
/// program made it twice, and each result has memory of its own. The nodes of that call come again before the reader;
/// where it stands in another module, those before it in that module come again as well. Products with 1 and sums with
/// 0 that were left out come back, too. None when the graph has nothing of the kind. `program` is the graph's own.
std::optional<Graph> undo_merging(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
