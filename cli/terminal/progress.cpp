#include "cli/terminal/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/terminal/output.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Progress::Progress() : started_(now()) {
  const char* term = std::getenv("TERM");
  // Both ends: a report that goes into a pipe is read by a program, whose user wants no moving line either.
  on_ = isatty(STDERR_FILENO) && isatty(STDOUT_FILENO) && term && std::string_view(term) != "dumb";
  winsize size{};
  if (on_ && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) width_ = size.ws_col;
}

void Progress::show(const std::string& text) {
  if (!on_) return;
  const std::lock_guard lock(mutex_);
  text_ = clean(text);
  if (thread_.joinable()) return;
  stop_ = false;
  thread_ = std::thread([this] { draw(); });
}

void Progress::draw() {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  bool shown = false;
  std::string last;
  while (!wake_.wait_for(lock, 100ms, [this] { return stop_; })) {
    const double seconds = now() - started_;
    if (seconds < 0.5) continue;
    const std::string line = seconds < 2 ? text_ : fmt::format("{}  {:.0f} s", text_, seconds);
    if (line == last) continue;
    tell(fmt::format("\r\x1b[K{}", shorten(line, width_ - 1, Style{})));
    std::fflush(stderr);
    last = line;
    shown = true;
  }
  if (!shown) return;
  tell("\r\x1b[K");
  std::fflush(stderr);
}

void Progress::clear() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

}  // namespace memplan::cli
