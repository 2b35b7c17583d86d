#include "cli/terminal/timeout.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "estimators/companion/ending.h"

namespace memplan::cli {

namespace {

constexpr std::int64_t longest_timeout = 1'000'000'000;  // alarm() takes an unsigned int

/// Made before the time is up, because a signal handler must not allocate.
struct TimeoutMessage {
  std::string text;
  int file = STDERR_FILENO;
};
TimeoutMessage& timeout_message() {
  static TimeoutMessage made;
  return made;
}

extern "C" void time_is_up(int) {
  const TimeoutMessage& m = timeout_message();
  for (std::size_t at = 0; at < m.text.size();) {
    const ssize_t n = ::write(m.file, m.text.data() + at, m.text.size() - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  remove_what_is_left();
  ::_exit(timeout_exit_code);
}

}  // namespace

Error timeout_error(std::int64_t seconds) {
  return {ErrorKind::input,
          fmt::format("no answer within {} second{}", seconds, seconds == 1 ? "" : "s"),
          {},
          "give --timeout more seconds, or leave the searches out with --no-search"};
}

void start_timeout(std::int64_t seconds, std::string message, int file) {
  timeout_message() = {std::move(message), file};
  std::signal(SIGALRM, time_is_up);
  ::alarm(static_cast<unsigned>(std::min(seconds, longest_timeout)));
}

void stop_timeout() { ::alarm(0); }

}  // namespace memplan::cli
