// What happens to a joint graph before it is cut: Inductor's passes over it (torch/_inductor/fx_passes/joint_graph.py)
// that change what is kept, and the partitioner's own removal of what is computed twice.
#pragma once

#include "estimators/runtime/torch/compiled/graph.h"

namespace memplan::compiled {

/// Nodes are numbered anew, in their order.
JointGraph simplify(JointGraph graph);

}  // namespace memplan::compiled
