// Subgraphs of If, Loop and Scan put into the graph that runs them.
#pragma once

#include <optional>
#include <vector>

#include "estimators/graph/dims.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// The main graph without If, Loop and Scan, where that is possible: the branch that a known condition takes, a loop
/// as often as its known trip count says. Of an If on data the larger branch is taken, with a note. Loops of unknown
/// length stay as they are. None when the graph has no subgraphs.
std::optional<Graph> flatten(const Model& model, const Symbols& symbols, Notes& notes);

}  // namespace memplan::onnx_format
