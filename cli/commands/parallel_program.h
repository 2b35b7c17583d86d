// The lines of the reference program that put the model on one or several devices.
#pragma once

#include <string>

#include "cli/options.h"

namespace memplan::cli {

/// model.to("cuda"), or the set-up of DDP, FSDP2 or tensor parallelism for torchrun. Failure(usage) for strategies whose
/// program is not a few lines of PyTorch (docs/parallelism.md describes them).
std::string place_on_devices(const Options& options);

}  // namespace memplan::cli
