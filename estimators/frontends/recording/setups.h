// Which setup of a recording answers a question, and what to say when none does.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimators/frontends/recording/recording.h"

namespace memplan::recording {

/// The setup of a run as the file writes it. Failure(input) for values that this reader does not know.
TrainingSetup read_setup(const nlohmann::json& j, const std::string& where);

/// Index into Recording::runs of the one that was recorded with `setup`. Failure(usage) where there is none: it names
/// the flags that differ from the nearest one, and how to record them.
std::size_t run_of(const Recording& recording, const TrainingSetup& setup);

}  // namespace memplan::recording
