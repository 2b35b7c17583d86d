// Losses that the exporter takes apart: nn.BCELoss and F.binary_cross_entropy.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// A graph where each such loss is one call again, `aten.binary_cross_entropy(input, target, None, reduction)`; eager
/// code runs one kernel, and saves neither logarithms nor products. Nothing where there is none. The decomposition is
/// that of torch/_decomp/decompositions.py.
std::optional<Graph> join_losses(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
