// A child process that is asked once: one text in, one text out, and gone with its parent.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace memplan {

struct ProcessLimits {
  std::chrono::seconds time{600};
  std::size_t output_bytes = std::size_t{1} << 30;  ///< of stdout; more is an error
};

struct ProcessResult {
  enum class End { exited, signalled, timed_out, too_much_output, not_started } end = End::not_started;
  int code = 0;        ///< exit code, or the signal
  std::string output;  ///< stdout
  std::string errors;  ///< the last 16 KiB of stderr
};

/// Runs `arguments[0]` (a path, or a name to be looked up in PATH), writes `input` to its stdin and reads its stdout.
/// `environment` is set on top of this process's own. The child is killed when it goes over a limit, and by the kernel
/// when this process dies, however it dies.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& input,
                          const std::vector<std::pair<std::string, std::string>>& environment,
                          const ProcessLimits& limits);

}  // namespace memplan
