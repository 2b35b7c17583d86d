#include "cli/python/package.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/companion/companion.h"
#include "estimators/companion/process.h"

namespace memplan::embedded {
std::string_view memplan_package_zip();
}

namespace memplan::cli {

namespace {

/// Those of `packages` that a Python lacks, or nothing where it does not run. Looking imports none of them.
std::optional<std::vector<std::string>> missing_in(const std::string& python,
                                                   const std::vector<std::string>& packages) {
  const ProcessResult r = run_process({python, "-c",
                                       fmt::format("import sys; del sys.path[0]\nimport importlib.util as u\n"
                                                   "for n in '{}'.split(): u.find_spec(n) or print(n)",
                                                   fmt::join(packages, " "))},
                                      {}, {}, {std::chrono::seconds(20), 65536});
  if (r.end != ProcessResult::End::exited || r.code != 0) return std::nullopt;
  std::vector<std::string> missing;
  for (const std::string& name : packages)
    if (("\n" + r.output).find("\n" + name + "\n") != std::string::npos) missing.push_back(name);
  return missing;
}

}  // namespace

std::string find_python(const std::vector<std::string>& packages, const char* why) {
  const char* named = std::getenv("MEMPLAN_TORCH_PYTHON");
  std::vector<std::string> candidates{"python3", "python"};
  if (named && *named)
    candidates = {named};
  else if (const std::string beside = program_folder() + "/python3"; access(beside.c_str(), X_OK) == 0)
    candidates.insert(candidates.begin(), beside);
  std::string best;
  std::vector<std::string> best_missing;
  for (const std::string& python : candidates) {
    const auto missing = missing_in(python, packages);
    if (missing && missing->empty()) return python;
    if (missing && (best.empty() || missing->size() < best_missing.size())) best = python, best_missing = *missing;
  }
  if (best.empty())
    fail(ErrorKind::usage, fmt::format("{}, and no Python runs here", why), named ? named : "",
         fmt::format("install Python 3 with pip install {}, or set MEMPLAN_TORCH_PYTHON=/path/to/python",
                     fmt::join(packages, " ")));
  fail(ErrorKind::usage, fmt::format("{}, but {} lacks {}", why, best, fmt::join(best_missing, " and ")), {},
       fmt::format("run {} -m pip install {}, or set MEMPLAN_TORCH_PYTHON to a Python that has {}", best,
                   fmt::join(best_missing, " "), best_missing.size() == 1 ? "it" : "them"));
}

std::vector<std::string> package_command(const std::string& python, const std::string& folder,
                                         const std::vector<std::string>& words) {
  const std::string zip = folder + "/memplan.zip";
  const std::string_view bytes = embedded::memplan_package_zip();
  std::ofstream file(zip, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) fail_input("a temporary file cannot be written", zip, "is there room on the disk?");
  // The package stands where Python would look for modules in the working folder, which may hold anything.
  std::vector<std::string> command{python, "-c",
                                   "import sys; sys.path[0] = sys.argv.pop(1); "
                                   "from memplan.__main__ import main; sys.exit(main())",
                                   zip};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::vector<std::pair<std::string, std::string>> package_environment() {
  std::string self(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", self.data(), self.size());
  self.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return {{"MEMPLAN_PROGRAM", self}, {"PYTHONDONTWRITEBYTECODE", "1"}};
}

}  // namespace memplan::cli
