// The route for files that carry nothing but ONNX ops: patterns first, then op by op.
#pragma once

#include "estimators/frontends/onnx/values.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan {
struct TrainingSetup;
}

namespace memplan::onnx_format {

/// Appends the calls of the graph to the tape. Ops without a row become unknown calls, by name.
void lower_ops(const Graph& graph, const TrainingSetup& setup, Values& values, Tape& tape);

}  // namespace memplan::onnx_format
