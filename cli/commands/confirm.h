// memplan MODEL --confirm: the module itself runs on the emulated GPU, and the estimate is held against that.
#pragma once

#include "cli/answer/answer.h"

namespace memplan::cli {

/// Runs what the file says makes the module (or takes the recording of --confirm-with). Failure(usage) where the file
/// does not say that, or where the setup changes the program (checkpoints, sharding …).
Confirmation confirm(const Job& job, const Answer& answer);

}  // namespace memplan::cli
