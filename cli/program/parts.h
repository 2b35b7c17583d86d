// The modules of a model that a setup treats in a special way, for the lines of Python that do so.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "estimators/pipeline.h"
#include "estimators/transforms/checkpointing.h"

namespace memplan::cli {

struct ModelParts {
  std::vector<std::vector<std::string>> checkpointed;  ///< module paths; those of a group run as one
  std::vector<CheckpointStretch> nested;               ///< the same where stretches have others inside, else empty
  std::vector<std::string> adapted;                    ///< modules with low-rank adapters
  std::vector<std::string> units;                      ///< what FSDP gathers at a time, beside the root
  std::vector<std::string> unit_classes;               ///< their classes: "LlamaDecoderLayer"
  std::vector<std::pair<std::string, std::string>> tensor_plan;  ///< module path, ParallelStyle
};

/// `tape` is `model` lowered for `setup`, with its planned checkpoints. Failure of lower and of what the setup asks
/// for.
ModelParts parts_of(const Model& model, const Tape& tape, const TrainingSetup& setup);

/// The same, from the model itself.
ModelParts parts_of(const Model& model, const TrainingSetup& setup, const Device& device);

}  // namespace memplan::cli
