// The reference program (docs/reference-program.md) through PyTorch: the steps that
// estimators/runtime/torch/step/steps.cpp runs on paper.
#pragma once

#include "estimators/dryrun/request.h"
#include "memplan_torch/recorder.h"

namespace memplan::torch_side {

/// Runs set-up and all steps on this CUDA device. c10::OutOfMemoryError passes through; what was recorded stays.
void run_program(const DryRunRequest& request, int device, Recorder& recorder);

}  // namespace memplan::torch_side
