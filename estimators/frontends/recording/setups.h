// Which setup of a recording answers a question, and what to say when none does.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "estimators/frontends/recording/recording.h"

namespace memplan::recording {

/// The setup of a run as the file writes it. Failure(input) for values that this reader does not know.
TrainingSetup read_setup(const nlohmann::json& j, const std::string& where);

/// The run that was recorded with `setup`, if there is one.
std::optional<std::size_t> exact_run(const Recording& recording, const TrainingSetup& setup);

/// The run whose calls tell most of `setup`: of the same mode and precision where there is one. None where no run has
/// calls, or where training is asked of inference alone.
std::optional<std::size_t> nearest_run(const Recording& recording, const TrainingSetup& setup);

/// "training fp32 adamw"
std::string name_of_run(const Run& run);

/// Index into Recording::runs of the one that was recorded with `setup`. Failure(usage) where there is none: it names
/// the flags that differ from the nearest one, and how to record them.
std::size_t run_of(const Recording& recording, const TrainingSetup& setup);

}  // namespace memplan::recording
