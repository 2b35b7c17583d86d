// What an estimate rests on, in words that a report can print as they are.
#pragma once

#include <string>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// Sentences without a final stop, the most important first.
std::vector<std::string> assumptions_of(const TrainingSetup& setup, const Device& device);

// Names as the command line and the reports write them.
const char* name_of(Mode mode);
const char* name_of(Precision precision);
const char* precision_of(const TrainingSetup& setup);  ///< "fp8" and "fp8-weights" besides
const char* name_of(OptimizerKind kind);
const char* name_of(OptimizerImpl impl);
const char* name_of(AttentionBackend backend);
const char* name_of(Loss loss);
const char* name_of(ZeroGrad zero_grad);

}  // namespace memplan
