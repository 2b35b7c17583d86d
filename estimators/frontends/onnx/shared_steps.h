// Steps that two calls of one op have in common, which an optimizer left in the file once.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// A graph where each call has all of its nodes again: attention of the same queries and keys over other values
/// (differential attention) keeps but its last product. Nothing where no call shares steps that read floating-point
/// results of other calls.
std::optional<Graph> part_shared_steps(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
