// The lines that put a model on one or several devices.
#pragma once

#include <string>

#include "cli/program/parts.h"
#include "estimators/setup/setup.h"

namespace memplan::cli {

/// Whether a few lines of PyTorch make this job: one device, DDP, FSDP2 or tensor parallelism alone.
/// docs/parallelism.md describes the others.
bool has_short_program(const ParallelSetup& setup);

/// model.to("cuda"), or the set-up of DDP, FSDP2 or tensor parallelism for torchrun. Failure(usage) where there is no
/// short program.
std::string place_on_devices(const ParallelSetup& setup, const ModelParts& parts);

}  // namespace memplan::cli
