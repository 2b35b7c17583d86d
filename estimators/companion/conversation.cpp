#include "estimators/companion/conversation.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace memplan {

namespace {

constexpr std::size_t longest_line = std::size_t{64} << 10;

}  // namespace

Conversation::Conversation(const std::vector<std::string>& arguments,
                           const std::vector<std::pair<std::string, std::string>>& environment) {
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (!arguments.empty() && in_.read >= 0 && out_.read >= 0 && nowhere >= 0)
    child_ = start_child(arguments, environment, in_.read, out_.write, nowhere, ChildEnds::by_itself);
  Pipe::shut(nowhere);
  Pipe::shut(in_.read);
  Pipe::shut(out_.write);
}

Conversation::~Conversation() { end(); }

void Conversation::end() {
  Pipe::shut(in_.write);
  Pipe::shut(out_.read);
  if (child_ < 0) return;
  // It has nothing to finish.
  kill(child_, SIGKILL);
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

std::optional<std::string> Conversation::hear(std::chrono::milliseconds at_most) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + at_most;
  for (;;) {
    if (const auto newline = heard_.find('\n'); newline != std::string::npos) {
      std::string line = heard_.substr(0, newline);
      heard_.erase(0, newline + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{out_.read, POLLIN, 0};
    if (child_ < 0 || heard_.size() > longest_line || left <= 0) break;
    const int ready = poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    char buffer[4096];
    const ssize_t n = ready > 0 ? read(out_.read, buffer, sizeof buffer) : 0;
    if (n <= 0) break;
    heard_.append(buffer, static_cast<std::size_t>(n));
  }
  end();
  return std::nullopt;
}

std::optional<std::string> Conversation::ask(const std::string& line, std::chrono::milliseconds at_most) {
  if (child_ < 0) return std::nullopt;
  const IgnoreBrokenPipes ignore;
  const std::string text = line + "\n";
  // A line is shorter than a pipe's buffer, which is empty between two questions.
  if (write(in_.write, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    end();
    return std::nullopt;
  }
  return hear(at_most);
}

}  // namespace memplan
