// Lines of Python that several programs share: what a strategy is in PyTorch.
#pragma once

#include <string>

#include "cli/program/parts.h"
#include "cli/program/python.h"
#include "estimators/setup/setup.h"

namespace memplan::cli {

/// "torch.bfloat16" or "torch.float16".
const char* half_name(Precision precision);

/// The call that makes the optimizer, "None" without one. `over`: its parameters and what follows them.
std::string optimizer_text(const OptimizerSetup& setup, const std::string& over = "parameters");

/// Optimizers that are more than one line: MuonWithAdamW, HostOptimizer. They read the names `model` and `parameters`.
/// `arguments`: of the optimizer inside HostOptimizer, as in ", lr=lr".
std::string optimizer_classes(const TrainingSetup& setup, const std::string& arguments = {});

/// The one backend of scaled_dot_product_attention that is allowed; empty where PyTorch chooses.
std::string attention_text(AttentionBackend backend);

/// Freezes the parameters that the globs name.
std::string frozen_text(const std::vector<std::string>& globs);

/// peft's adapters on these modules.
std::string adapters_text(const LoraSetup& setup, const std::vector<std::string>& modules);

/// Wraps the checkpointed modules, and modules that run as one stretch into the first of them. `adapted`: `model` is
/// peft's.
std::string checkpoint_text(const TrainingSetup& setup, const ModelParts& parts, bool adapted);

}  // namespace memplan::cli
