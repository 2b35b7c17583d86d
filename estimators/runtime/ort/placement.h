// Where nodes run and values live: ONNX Runtime leaves what only computes sizes on the CPU
// (GetCpuPreferredNodes in onnxruntime/core/framework/fallback_cpu_capability.cc) and copies what crosses over
// (onnxruntime/core/optimizer/transformer_memcpy.cc).
#pragma once

#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::ort {

struct Placed {
  Graph graph;                        ///< with the copies as nodes at the end, MemcpyFromHost and MemcpyToHost
  std::vector<bool> node_on_cpu;      ///< by node
  std::vector<bool> value_on_device;  ///< by value
};

Placed place(Graph graph);

/// The same with its nodes in run_order.
Placed in_order(Placed placed);

/// The order in which the session runs the nodes (Graph::ReverseDFSFrom, nodes compared by index), as indices.
std::vector<std::int32_t> run_order(const Graph& graph);

}  // namespace memplan::ort
