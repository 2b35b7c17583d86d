// The graph that a session runs: what ONNX Runtime's optimizers make of the file's nodes
// (onnxruntime/core/optimizer, levels 1 and 2, as the CUDA provider has them).
#pragma once

#include <vector>

#include "estimators/graph/bound_graph.h"

namespace memplan::ort {

struct Optimized {
  Graph graph;  ///< nodes by their index in ONNX Runtime: those that a fusion made stand behind the others
  /// Op types left in a plain file that other optimizers of ONNX Runtime look at, so that they may be fused or moved.
  std::vector<std::string> may_change;
};

/// A file that ONNX Runtime saved is taken as it is.
bool saved_by_onnxruntime(const BoundGraph& bound);

Optimized optimized(const BoundGraph& bound);

}  // namespace memplan::ort
