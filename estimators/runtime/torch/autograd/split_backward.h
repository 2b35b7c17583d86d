// The backward pass in two parts, as torch.distributed.pipelining's zero-bubble schedules run it
// (torch/distributed/pipelining/_backward.py of PyTorch 2.11).
#pragma once

#include <set>

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

/// Parameters whose gradients follow from what arrives at the same nodes.
struct WeightGroup {
  std::vector<NodeRef> nodes;     ///< "intermediates"; they keep the graph behind them, and so what it saved
  std::vector<TensorList> grads;  ///< per node: what arrived there
  TensorList weights;
  std::set<Node*> between;  ///< from the weights up to the nodes, both with them
  bool one_node = true;     ///< of each weight; of several, one may lead to a weight past another one
};

/// stage_backward_input: gradients of `inputs` alone; the graph and everything saved in it stay.
TensorList backward_inputs(Run& run, const TensorList& roots, const TensorList& grads, const TensorList& inputs,
                           const TensorList& weights, std::vector<WeightGroup>& groups);

/// stage_backward_weight: gradients of the parameters, group by group.
void backward_weights(Run& run, std::vector<WeightGroup> groups);

}  // namespace memplan
