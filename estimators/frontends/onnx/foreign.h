// Lowering of single ONNX nodes, without knowledge of the PyTorch op behind them.
#pragma once

#include "estimators/frontends/onnx/facts.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// Appends the calls that stand for one node; unknown ops become unknown calls.
void lower_foreign(const GraphNode& node, const TrainingSetup& setup, Values& values, Tape& tape);

/// A call that keeps the op unknown, "onnx::Split": its tensors count, its shapes come from the file.
Call unknown_call(const GraphNode& node, Values& values, Tape& tape, const Facts* facts = nullptr);

}  // namespace memplan::onnx_format
