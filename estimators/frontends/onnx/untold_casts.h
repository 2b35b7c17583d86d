// Casts without a text of their own that end a call.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// A Cast without metadata whose result has the name of the call that made its input is that call's last node, and gets
/// its metadata: an optimizer put it in the place of a CastLike, as aten.bernoulli has one. None when the graph has
/// nothing of the kind. `program` is the graph's own.
std::optional<Graph> tell_casts(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
