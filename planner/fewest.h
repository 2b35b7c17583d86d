// "How many of this card?" when one cannot hold the training.
#pragma once

#include <optional>
#include <string>

#include "planner/search.h"

namespace memplan {

struct FewestGpus {
  std::int64_t gpus = 0;
  std::string flags;  ///< settings (setup/field.h) of GPUs, FSDP, checkpoints
  TrainingSetup setup;
  Bytes peak;  ///< process bytes of the heaviest rank, estimated
};

/// The smallest power of two up to 16,384 with which the training fits when weights, gradients and optimizer state are
/// shared out (FSDP2 on every block) and, where activations are too large for that, the blocks are cut as well (tensor
/// and sequence parallelism within a node of 8). Samples of a GPU stay; where no number is enough as it is, and
/// `further` ways may be gone, its blocks are checkpointed, then gathered in bfloat16. None for inference, for a setup
/// that is parallel already, and where nothing of that is enough.
std::optional<FewestGpus> fewest_gpus(const Model& model, const TrainingSetup& setup, const Device& device,
                                      const MarginOf& margin, bool further = true);

}  // namespace memplan
