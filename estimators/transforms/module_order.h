// The order in which model.to(device) moves tensors.
#pragma once

#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Children before their parent, a module's parameters before its buffers (torch/nn/modules/module.py, _apply).
/// Children are visited in the order in which their names first appear among parameters, then buffers. Constants
/// of the graph come last.
std::vector<ValueId> module_order(const Tape& tape);

/// The weights of each recurrent layer, in the layer's order: after the move nn.RNNBase copies them into one buffer
/// (torch/nn/modules/rnn.py, flatten_parameters) and leaves the parameters as views of it.
std::vector<std::vector<ValueId>> flattened_groups(const Tape& tape);

}  // namespace memplan
