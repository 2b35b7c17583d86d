// A child process that is asked again and again: a line in, a line out.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimators/companion/child.h"

namespace memplan {

class Conversation {
 public:
  /// Starts `arguments[0]` as run_process does; what it says on stderr is thrown away.
  Conversation(const std::vector<std::string>& arguments,
               const std::vector<std::pair<std::string, std::string>>& environment);
  /// Closes the child's input, which ends it, and kills it where that does not.
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// The next line of the child's, without its end. None when it is gone, takes longer, or says more than 64 KiB
  /// without an end; it is killed then, and every later answer is none.
  std::optional<std::string> hear(std::chrono::milliseconds at_most);
  /// Says `line` and hears the answer.
  std::optional<std::string> ask(const std::string& line, std::chrono::milliseconds at_most);

 private:
  void end();
  Pipe in_, out_;
  pid_t child_ = -1;
  std::string heard_;  ///< what came behind the last line
};

}  // namespace memplan
