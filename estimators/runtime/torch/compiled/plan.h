// Which buffers a compiled pass has and in which order they come and go, after fusion
// (torch/_inductor/scheduler.py, torch/_inductor/codegen/wrapper.py).
#pragma once

#include "estimators/runtime/torch/compiled/partition.h"

namespace memplan::compiled {

enum class Fusion : std::uint8_t {
  whole,   ///< what is pointwise is computed where it is read, and results take the place of what is read last
  little,  ///< pointwise results that several kernels read are in memory, and nothing is written in place
};

/// One buffer. Results of a node with several have one each.
struct Buffer {
  NodeId node = -1;
  std::int32_t takes_over = -1;  ///< the buffer whose memory it has; -1: its own
};

/// A kernel: allocates buffers, then lets others go.
struct Kernel {
  NodeId node = -1;
  std::vector<std::int32_t> allocates, frees;  ///< indices into Pass::buffers
};

struct Pass {
  std::vector<Buffer> buffers;  ///< those that are handed in come first
  std::vector<Kernel> kernels;
  std::vector<std::int32_t> of_node;  ///< by node: the buffer where it lies; -1: it has none
  std::int64_t peak = 0;              ///< bytes, with what was handed in
};

struct PassPlans {
  Pass forward, backward;
};

/// Inductor runs convolutions in channels_last where that pays (torch/_inductor/graph.py, decide_layout_opt): weights
/// and images that come in another layout are copied, and the copies are what the backward pass gets.
/// Says whether it did.
bool in_layout(JointGraph& graph, Partition& partition);

PassPlans plan(const JointGraph& graph, const Partition& partition, Fusion fusion);

}  // namespace memplan::compiled
