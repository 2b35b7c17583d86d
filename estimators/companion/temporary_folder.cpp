#include "estimators/companion/temporary_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "estimators/base/error.h"

namespace memplan {

namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "memplan-run-";

/// "memplan-run-1234-XXXXXX" of a memplan that runs no more.
void remove_stale(const fs::path& below) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(below, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const long pid = std::strtol(name.c_str() + std::strlen(prefix), nullptr, 10);
    if (pid > 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const fs::path below = fs::temp_directory_path(error);
  if (error)
    fail_input("there is no folder for temporary files", {}, "set TMPDIR to a folder that exists and is writable");
  remove_stale(below);
  std::string pattern = (below / fmt::format("{}{}-XXXXXX", prefix, ::getpid())).string();
  if (!mkdtemp(pattern.data()))
    fail_input(fmt::format("no temporary folder can be made: {}", std::strerror(errno)), below.string(),
               "set TMPDIR to a folder that is writable");
  path_ = pattern;
  removed_.emplace(path_, RemovedAtEnd::What::folder);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace memplan
