#include "estimators/base/threads.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace memplan {

namespace {

thread_local bool spread = false;

/// As many as there are cores, or as MEMPLAN_THREADS says. Answers do not depend on it.
std::size_t most_workers() {
  static const std::size_t most = [] {
    const char* told = std::getenv("MEMPLAN_THREADS");
    const long number = told ? std::strtol(told, nullptr, 10) : 0;
    return number > 0 ? static_cast<std::size_t>(std::min(number, 256L))
                      : std::size_t{std::max(1u, std::thread::hardware_concurrency())};
  }();
  return most;
}

}  // namespace

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& part) {
  const std::size_t workers = spread ? 1 : std::min(count, most_workers());
  if (workers < 2) {
    for (std::size_t i = 0; i < count; ++i) part(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> thrown(count);
  const auto work = [&] {
    spread = true;
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        part(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
    spread = false;
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < workers; ++i) {
      try {
        others.emplace_back(work);
      } catch (const std::system_error&) {
        break;  // no more threads to be had: those that run do it all
      }
    }
    work();
  }
  for (const std::exception_ptr& e : thrown)
    if (e) std::rethrow_exception(e);
}

}  // namespace memplan
