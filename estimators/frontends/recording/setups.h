// Which setup of a recording answers a question, and what to say when none does.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "estimators/frontends/recording/recording.h"
#include "estimators/setup/field.h"

namespace memplan::recording {

/// The setup of a run as the file writes it. Failure(input) for values that this reader does not know.
TrainingSetup read_setup(const nlohmann::json& j, const std::string& where);

/// The run that was recorded with `setup`, if there is one.
std::optional<std::size_t> exact_run(const Recording& recording, const TrainingSetup& setup);

/// The run whose calls tell most of `setup`: of the same mode and precision where there is one. None where no run has
/// calls, or where training is asked of inference alone.
std::optional<std::size_t> nearest_run(const Recording& recording, const TrainingSetup& setup);

/// What the script of a recording ran, in the fields that `given` does not name: memplan's question where it says
/// nothing else. Where no script ran the setup is as it is, but compiled where every run is.
using IsGiven = std::function<bool(Field)>;
TrainingSetup as_recorded(const Recording& recording, TrainingSetup setup, const IsGiven& given);

/// "training fp32 adamw"
/// A setup as `memplan record --setup` takes it: "mode=training,precision=fp32,…".
std::string words_of(const TrainingSetup& setup);

/// What of a setup changes the program itself, so that the module alone does not run it; empty: nothing.
std::string beyond_recording(const TrainingSetup& setup);

std::string name_of_run(const Run& run);

/// Index into Recording::runs of the one that was recorded with `setup`. Failure(usage) where there is none: it names
/// the flags that differ from the nearest one, and how to record them.
std::size_t run_of(const Recording& recording, const TrainingSetup& setup);

}  // namespace memplan::recording
