// Deviations from a mean that an optimizer merged with those of a variance.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// A graph where `x - mean` is a call again beside `torch.var(x)`, whose nodes the exporter writes as a mean,
/// deviations from it, their squares and a mean of those. Nothing where no other call reads deviations of a variance.
std::optional<Graph> part_variances(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
