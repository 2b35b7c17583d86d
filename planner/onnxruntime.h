// What would make a session of ONNX Runtime smaller: its own options, each estimated.
#pragma once

#include <vector>

#include "planner/search.h"

namespace memplan {

/// Options, and two together, with which the process needs less than `known`, by what it needs.
std::vector<Alternative> smaller_sessions(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                          Bytes margin, const Estimate& known);

}  // namespace memplan
