// What `memplan observe` is asked for, beside the device and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace memplan::cli {

struct Parsed;

struct ObserveOptions {
  std::int64_t world = 1;
  std::vector<std::int64_t> ranks;  ///< empty: all
  std::int64_t devices = 0;         ///< that one process sees; 0: min(world, 8)
  std::int64_t stop_after = 0;      ///< optimizer steps; 0: the script decides
  std::int64_t jobs = 0;            ///< processes at once; 0: as many as there are cores
  bool world_given = false, no_limit = false;
  std::vector<std::string> command;
};

/// Failure(usage) on nonsense; without a command only where just help is wanted.
ObserveOptions observe_options(const Parsed& parsed, bool only_help);

}  // namespace memplan::cli
