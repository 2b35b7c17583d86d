// The order in which model.to(device) moves tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Children before their parent, a module's parameters before its buffers (torch/nn/modules/module.py, _apply).
/// Children are visited in the order in which their names first appear among parameters, then buffers. Constants
/// of the graph come last.
std::vector<ValueId> module_order(const Tape& tape);

/// After the move nn.RNNBase copies a recurrent layer's weights into one buffer (torch/nn/modules/rnn.py,
/// flatten_parameters) and leaves the parameters as views of it.
struct FlatWeights {
  std::vector<ValueId> weights;  ///< in the layer's order
  std::int64_t biases = 0;       ///< elements of two biases that cuDNN always has, where the layer has none
};
std::vector<FlatWeights> flattened_groups(const Tape& tape);

}  // namespace memplan
