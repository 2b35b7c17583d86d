// The graph that a session runs: what ONNX Runtime's optimizers make of the file's nodes
// (onnxruntime/core/optimizer, levels 1 and 2, as the CUDA provider has them).
#pragma once

#include <vector>

#include "estimators/graph/bound_graph.h"
#include "estimators/runtime/ort/versions/versions.h"

namespace memplan::ort {

struct Optimized {
  Graph graph;  ///< nodes by their index in ONNX Runtime: those that a fusion made stand behind the others
  /// Op types left in a plain file that other optimizers of ONNX Runtime look at, so that they may be fused or moved.
  std::vector<std::string> may_change;
  bool rearranged = false;  ///< the order of its nodes is not the one in which a session runs them
};

/// Key of a node's metadata: its index in ONNX Runtime's graph, where that was asked (estimators/onnxruntime).
inline constexpr const char* index_key = "onnxruntime.index";

/// A file that ONNX Runtime saved is taken as it is; it is told by Model::domains.
bool saved_by_onnxruntime(const std::vector<std::string>& domains);

/// A plain graph of nothing but ops whose optimizers are followed here.
bool is_settled(const Graph& graph);

Optimized optimized(const BoundGraph& bound, const OrtProfile& profile);

}  // namespace memplan::ort
