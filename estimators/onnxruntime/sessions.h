// Sessions of an installed onnxruntime-gpu under the emulated GPU: what they ask the device for, in the order in which
// they do.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "estimators/setup/onnxruntime.h"

namespace memplan {

struct SessionInput {
  std::string name, dtype;
  std::vector<std::int64_t> sizes;
};

struct DriverRequest {
  bool gives_back = false;
  std::int64_t bytes = 0;
  std::uint64_t address = 0;
};

/// One session: what was asked for while it was made, then run by run.
struct SessionLog {
  std::string version;  ///< of onnxruntime-gpu
  std::vector<std::vector<DriverRequest>> phases;
  std::string out_of_memory;  ///< ONNX Runtime's message, where memory ran out; it stopped there
};

struct SessionLogs {
  SessionLog requests;  ///< of kernels and of the planner, past the arena, on a device that never refuses
  SessionLog arena;     ///< what the arena takes from the driver
};

struct SessionPlace {
  std::string python = "auto";  ///< or the one that has onnxruntime-gpu
  /// That make the emulated GPU: the card, and one that never refuses.
  std::vector<std::pair<std::string, std::string>> card, unlimited;
  std::chrono::seconds time_limit{600};
};

/// Makes both sessions of the file whose bytes `slim` gives (slim_onnx, pipeline.h), with weights of zeros, and runs
/// each `runs` times on inputs of zeros. Failure(usage) where onnxruntime-gpu or a library that it needs is missing;
/// Failure(input) where it does not run the file.
SessionLogs run_sessions(const std::string& slim, const std::vector<SessionInput>& inputs, const OrtSetup& setup,
                         std::int64_t runs, const SessionPlace& place);

}  // namespace memplan
