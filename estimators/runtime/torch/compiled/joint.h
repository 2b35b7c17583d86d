// From a tape to the joint graph of its compiled module.
#pragma once

#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/runtime/torch/compiled/graph.h"

namespace memplan::compiled {

struct Joint {
  JointGraph graph;    ///< simplified
  TensorList primals;  ///< parallel to JointGraph::primals: the tensors that `env` has; empty for parts of the batch
  std::vector<std::int32_t> inputs;   ///< likewise: the value of the tape where it is part of the batch, else -1
  std::vector<std::int32_t> outputs;  ///< values of the tape that are the outputs of the graph
  Notes notes, notes_in_layout;       ///< what the kernels of libraries left open; where they run in channels_last
};

/// `env` has parameters, buffers and inputs. The module is compiled for a backward pass where `run` records gradients.
Joint joint_graph(const Run& run, const Tape& tape, const Environment& env);

}  // namespace memplan::compiled
