// Rebuilding the FX program from the text that PyTorch's exporter leaves on each ONNX node. Nodes with one text are one
// ATen call; nodes without (an optimizer made them) are lowered by their ONNX op.
#pragma once

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan {
struct TrainingSetup;
}

namespace memplan::onnx_format {

/// Appends the calls of the graph to the tape. `program` is the graph's own.
void lower_fx(const Graph& graph, const FxProgram& program, const TrainingSetup& setup, Values& values, Tape& tape);

}  // namespace memplan::onnx_format
