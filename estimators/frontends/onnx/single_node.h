// Lowering of single ONNX nodes, without knowledge of the PyTorch op behind them.
#pragma once

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// Appends the calls that stand for one node; unknown ops become unknown calls.
void lower_single_node(const GraphNode& node, const TrainingSetup& setup, Values& values, Tape& tape);

/// A call that keeps the op unknown, "onnx::Split": its tensors count, its shapes come from the file.
Call unknown_call(const GraphNode& node, Values& values, Tape& tape, const InferredValues* inferred = nullptr);

}  // namespace memplan::onnx_format
