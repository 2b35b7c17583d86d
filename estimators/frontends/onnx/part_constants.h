// Tensors that several calls made alike, and that the exporter worked out and keeps once.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Each layer's forward pass makes its own mask (`torch.tril(torch.ones(n, n))`). Worked out ahead of the run they are
/// equal, and the file has one, by the name of the first. A call whose text names another result of that op, which the
/// file does not have, gets a tensor of its own. None where the graph has no such call. `program` is the graph's own.
std::optional<Graph> part_constants(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
