#include "estimators/base/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace memplan {

namespace {

thread_local bool spread = false;

}  // namespace

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& part) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency()),
                    workers = spread ? 1 : std::min(count, cores);
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
