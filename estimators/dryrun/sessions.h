// A file in sessions of an installed onnxruntime-gpu, as a measurement.
#pragma once

#include <string>

#include "estimators/dryrun/dryrun.h"

namespace memplan {

/// `slim` is the file that `tape` was read from (slim_onnx, pipeline.h); `python`: the one that has onnxruntime-gpu, or
/// "auto". The steps are the runs of a session; step 0 is its making. Requested bytes come from a session without an
/// arena, reserved ones from a second session with one; both load their weights in the same order. Failures as in
/// onnxruntime/sessions.h.
Measurement measure_sessions(const std::string& slim, const Tape& tape, const TrainingSetup& setup,
                             const DryRunPlace& place, const std::string& python);

}  // namespace memplan
