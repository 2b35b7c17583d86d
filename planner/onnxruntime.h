// What would make a session of ONNX Runtime smaller: its own options, each estimated.
#pragma once

#include <vector>

#include "planner/search.h"
#include "planner/suggest.h"

namespace memplan {

/// Options, and two together, with which the process needs less than `known`, by what it needs.
std::vector<Alternative> smaller_sessions(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                          Bytes margin, const Estimate& known);

/// All combinations of the options that move memory, each estimated. Those that fit come with what they cost at run
/// time (`cautions`), the cheapest first and among equals the smallest; where none fits, the largest batch that does
/// with the smallest of them. No step times: nothing is known of how fast a session runs.
Suggestion suggest_session(const Model& model, const TrainingSetup& setup, const Device& device,
                           const MarginOf& margin);

}  // namespace memplan
