// Starts the processes of a user's script and sees to it that none of them outlives memplan.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace memplan::cli {

struct Process {
  std::vector<std::string> command;                ///< looked up in PATH
  std::map<std::string, std::string> environment;  ///< on top of memplan's own
  std::string log;                                 ///< file for its output; empty: memplan's stderr
  bool own_output = false;                         ///< its stdout is memplan's: there is no report
};

struct Ended {
  int code = 0;  ///< exit code, or 128 + signal
  bool started = true;
};

/// Runs all of them, at most `at_once` at a time. On SIGINT, SIGTERM or SIGHUP they are ended together with all that
/// they started, and `interrupted` is the signal (0 otherwise). Failure(usage) when a command cannot be started.
std::vector<Ended> run_processes(const std::vector<Process>& processes, std::size_t at_once, int& interrupted);

}  // namespace memplan::cli
