// Reports of memplan suggest.
#pragma once

#include <string>

#include "cli/answer/answer.h"
#include "cli/terminal/style.h"
#include "planner/advice.h"
#include "planner/fewest.h"
#include "planner/suggest.h"

namespace memplan::cli {

inline constexpr const char* planner_schema_version = "1.0";  ///< docs/planner.schema.json

struct SuggestAnswer {
  std::string path;
  DeviceChoice choice;
  Bytes margin;
  std::int64_t parameters = 0;
  Suggestion suggestion;
  std::vector<Advice> advice;
  std::optional<FewestGpus> enough;  ///< where nothing fits on the GPUs of the job
  TimeAssumptions time;
  std::string settings;  ///< of the first that fits, for Options::framework; empty where none fits
  int exit_code = 0;
};

std::string suggest_text(const SuggestAnswer& answer, const Options& options, const Style& style);
/// The same of a session of ONNX Runtime, which has options and no step times.
std::string session_suggest_text(const SuggestAnswer& answer, const Options& options, const Style& style);
/// docs/planner.schema.json
std::string suggest_json(const SuggestAnswer& answer, const Options& options);
/// Reads from top to bottom without an image.
std::string suggest_markdown(const SuggestAnswer& answer, const Options& options);
/// The command that estimates a candidate.
std::string command_of(const SuggestAnswer& answer, const Options& options, const Candidate& candidate);
/// "8 x h100-80gb with --gpus 8 --fsdp (peak 61.2 GiB each)".
std::string enough_text(const FewestGpus& enough, const Device& device);
/// Every line that is not empty two columns further right.
std::string indented(const std::string& text);
/// "812 ms", "1.42 s".
std::string time_text(double seconds);

}  // namespace memplan::cli
