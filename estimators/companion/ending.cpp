#include "estimators/companion/ending.h"

#include <limits.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

namespace memplan {

namespace {

/// Everything below is read by signal handlers: fixed places, nothing allocated there.
struct Left {
  std::array<char, PATH_MAX> path{};
  RemovedAtEnd::What what = RemovedAtEnd::What::file;
  std::atomic<bool> used = false;
};

std::array<Left, 8>& places() {
  static std::array<Left, 8> all;
  return all;
}

LastWords& last_words() {
  static LastWords words;
  return words;
}

[[noreturn]] void end_with(std::string_view words, int code) {
  static std::atomic<bool> ending = false;
  while (ending.exchange(true)) ::pause();  // another thread says it
  remove_what_is_left();
  for (std::size_t at = 0; at < words.size();) {
    const ssize_t n = ::write(last_words().file, words.data() + at, words.size() - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  ::_exit(code);
}

void wait_a_little() {
  timespec some{0, 10'000'000};
  ::nanosleep(&some, nullptr);
}

/// What children of memplan still write into the folder ends with memplan: they die with it. So does this wait.
void remove_folder_later(const char* path) {
  const pid_t parent = ::getpid();
  if (::fork() != 0) return;
  ::setsid();
  while (::getppid() == parent) wait_a_little();
  wait_a_little();
  ::execl("/bin/rm", "rm", "-rf", "--", path, nullptr);
  ::_exit(1);
}

extern "C" void ended_by_signal(int signal) {
  remove_what_is_left();
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // delivered when this handler returns
}

/// Only files are mapped, so this is a page of one that is no longer there.
extern "C" void file_shrank(int) { end_with(last_words().shrunk, 3); }

[[noreturn]] void nobody_caught() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {
  }
  end_with(last_words().defect, 70);
}

/// Where whoever started memplan ignores a signal (nohup), it stays ignored.
void handle(int signal) {
  struct sigaction before {};
  if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = ended_by_signal;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void prepare_last_words(LastWords words) { last_words() = std::move(words); }

void guard_endings() {
  last_words();
  places();
  std::signal(SIGBUS, file_shrank);
  std::set_terminate(nobody_caught);
  // At once: an exception could be taken for the failure of one trial of many, and the answer would be another one.
  std::set_new_handler(end_without_memory);
}

void end_without_memory() {
  const std::string& words = last_words().no_memory;
  end_with(words.empty() ? "error: not enough host memory.\n" : std::string_view(words), 3);
}

RemovedAtEnd::RemovedAtEnd(const std::string& path, What what) {
  if (path.size() >= PATH_MAX) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal);
  for (std::size_t i = 0; i < places().size(); ++i) {
    Left& place = places()[i];
    if (place.used) continue;
    std::memcpy(place.path.data(), path.c_str(), path.size() + 1);
    place.what = what;
    place.used = true;
    place_ = static_cast<int>(i);
    return;
  }
}

RemovedAtEnd::~RemovedAtEnd() {
  if (place_ >= 0) places()[static_cast<std::size_t>(place_)].used = false;
}

void remove_what_is_left() {
  for (Left& place : places()) {
    if (!place.used.exchange(false)) continue;
    if (place.what == RemovedAtEnd::What::file)
      ::unlink(place.path.data());
    else
      remove_folder_later(place.path.data());
  }
}

}  // namespace memplan
