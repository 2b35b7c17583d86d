// Tensor parallelism as Megatron cuts a transformer, found from the graph.
#pragma once

#include "estimators/facts/device.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// The tape of one tensor-parallel rank. Inside the blocks a linear layer whose input is whole is cut by its outputs
/// and one whose input is cut by its inputs; what lies between works on its share of heads or features. Layers whose
/// results something needs whole (a router's scores) stay whole. The token embedding is cut by the vocabulary, and so
/// is the head; its logits are gathered. With sequence parallelism what lies between blocks works on a share of the
/// sequence. Failure(usage) where the ranks do not divide the attention heads or the features.
Tape shard_tensors(const Tape& tape, const TrainingSetup& setup, const Device& device);

}  // namespace memplan
