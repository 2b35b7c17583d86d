// What both kinds of child processes share (process.h, conversation.h): pipes, the environment, and what happens
// between fork and exec.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace memplan {

/// Closed at the end of its life; -1 where it is closed already or was never opened.
struct Pipe {
  int read = -1, write = -1;
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void shut(int& end);
};

/// A child that closes its input early must not end this process.
class IgnoreBrokenPipes {
 public:
  IgnoreBrokenPipes();
  ~IgnoreBrokenPipes();
  IgnoreBrokenPipes(const IgnoreBrokenPipes&) = delete;
  IgnoreBrokenPipes& operator=(const IgnoreBrokenPipes&) = delete;

 private:
  struct sigaction before_ {};
};

/// When the kernel kills a child: with the thread that started it, however that one dies, or not at all. One that reads
/// its stdin to the end goes by itself.
enum class ChildEnds : std::uint8_t { with_the_thread, by_itself };

/// Runs `arguments[0]` (a path, or a name to be looked up in PATH) with these ends as stdin, stdout and stderr and
/// `environment` on top of this process's own. -1: it could not be forked.
pid_t start_child(const std::vector<std::string>& arguments,
                  const std::vector<std::pair<std::string, std::string>>& environment, int in, int out, int err,
                  ChildEnds ends);

}  // namespace memplan
