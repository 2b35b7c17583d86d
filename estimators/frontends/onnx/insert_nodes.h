// Nodes that a pass over a graph puts back.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Nodes by the index of the one that they stand before; the number of nodes is the end.
using NodesBefore = std::map<std::size_t, std::vector<GraphNode>>;

/// Puts them there; `before` is used up.
inline void insert_nodes(std::vector<GraphNode>& nodes, NodesBefore& before) {
  std::vector<GraphNode> out;
  for (std::size_t i = 0; i <= nodes.size(); ++i) {
    if (auto it = before.find(i); it != before.end())
      for (GraphNode& n : it->second) out.push_back(std::move(n));
    if (i < nodes.size()) out.push_back(std::move(nodes[i]));
  }
  nodes = std::move(out);
}

/// Without outputs, which whoever adds it makes.
inline GraphNode node_of(std::string op_type, std::vector<GraphValueId> inputs) {
  GraphNode node;
  node.op_type = std::move(op_type);
  node.inputs = std::move(inputs);
  return node;
}

}  // namespace memplan::onnx_format
