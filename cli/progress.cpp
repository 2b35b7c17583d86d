#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/report/style.h"

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
  const double t = now();
  if (!on_ || t - started_ < 0.5 || t - last_ < 0.1) return;
  last_ = t;
  shown_ = true;
  fmt::print(stderr, "\r\x1b[K{}", shorten(clean(text), width_ - 1, Style{}));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  shown_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace memplan::cli
