// What a compiled module keeps for its backward pass: the minimum cut of PyTorch's partitioner
// (torch/_functorch/partitioners.py, min_cut_rematerialization_partition, with the settings of
// torch/_functorch/config.py).
#pragma once

#include "estimators/runtime/torch/compiled/graph.h"

namespace memplan::compiled {

struct Partition {
  std::vector<NodeId> saved;   ///< in the order of the graph; inputs of the forward pass among them
  std::vector<bool> forward;   ///< by node: the forward pass computes it
  std::vector<bool> backward;  ///< by node: the backward pass computes it, for the first or a second time
  bool cut = true;             ///< false: no cut has a limit, and all that the backward pass reads is kept
};

/// Of a graph that went through simplify() (passes.h). `budget` is torch._functorch.config.activation_memory_budget:
/// 1 keeps what makes the step fastest, 0 only the inputs; between them that part of the difference.
Partition partition(const JointGraph& graph, double budget = 1);

}  // namespace memplan::compiled
