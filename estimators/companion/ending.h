// What memplan does when it is ended before its answer is there: by a signal, by a file that becomes shorter while it
// is read, or by memory that runs out where no exception can pass.
#pragma once

#include <string>

namespace memplan {

/// What is said in those cases, made while there is memory. `file` is STDOUT_FILENO for a document, STDERR_FILENO for
/// people.
struct LastWords {
  std::string shrunk;     ///< exit code 3
  std::string no_memory;  ///< exit code 3
  std::string defect;     ///< exit code 70: an exception that nobody caught
  int file = 2;
};
/// The first thing of main(); nothing is allocated.
void guard_endings();
void prepare_last_words(LastWords words);

/// Says that memory ran out, and ends memplan with exit code 3.
[[noreturn]] void end_without_memory();

/// A file or a folder that shall not be left behind: SIGINT, SIGTERM, SIGHUP, --timeout and the cases above remove it
/// before memplan ends. Whoever made the value removes it otherwise. A folder goes right after memplan, when nobody
/// writes into it any more.
class RemovedAtEnd {
 public:
  enum class What { file, folder };
  RemovedAtEnd(const std::string& path, What what);
  ~RemovedAtEnd();
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;

 private:
  int place_ = -1;
};

/// Safe in a signal handler, right before _exit().
void remove_what_is_left();

}  // namespace memplan
