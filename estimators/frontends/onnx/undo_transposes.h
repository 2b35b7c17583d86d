// Transposes that the exporter's optimizer joined with the next one: made apart again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// `torch.index_select(x, 1, i).transpose(1, 2)`: the last node of a call's group turns its result back, and is one
/// with the transpose that follows, whose text says what it does alone. The other one comes back to its call. So does
/// `x.permute(0, 3, 1, 2)` in front of a norm that turns it back, of which an Identity with the norm's text is left.
/// None where the graph has no such node. `program` is the graph's own.
std::optional<Graph> undo_transposes(const Graph& graph, const FxProgram& program);

/// Whether node `i`, whose input node `made` makes (-1: none), may be two transposes that are still joined: not where
/// one stands in front of it, as undo_transposes leaves those that it has taken apart.
bool may_be_joined(const Graph& graph, std::size_t i, std::int32_t made);

}  // namespace memplan::onnx_format
