// What ONNX Runtime reads to place nodes under a memory limit (session.resource_cuda_partitioning_settings): a cost for
// every node. It gives the CUDA provider nodes in the order in which they run, as long as the costs add up to less than
// the limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/reading.h"

namespace memplan::ort {

struct NodeStats {
  std::string name;          ///< as ONNX Runtime tells nodes apart: its name or op, and a hash of its tensors' names
  std::int64_t weights = 0;  ///< that no node before it reads
  std::int64_t buffers = 0;  ///< what the arena grows by beside that when this node is the last on the device
};

/// The nodes that may run on the device, in their order. The costs of the first ones add up to what the arena of a
/// session takes at most in which these run on the device and the others do not. The arena is one that grows as
/// requested: with kNextPowerOfTwo it takes a region twice as large as the last one, whatever the costs are.
/// `bound` is the graph before ONNX Runtime's extended optimizers: at that point it places nodes.
std::vector<NodeStats> node_stats(const BoundGraph& bound, const TrainingSetup& setup, const Device& device,
                                  const Reading& reading);

/// The node's name, or its op where it has none, and 64 bits of MurmurHash3_x86_128 over the names of its inputs and
/// outputs (IResourceAccountant::MakeUniqueNodeName).
std::string unique_name(const std::string& node, const std::vector<std::string_view>& tensors);

}  // namespace memplan::ort
