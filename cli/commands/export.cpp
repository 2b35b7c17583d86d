// memplan export SOURCE and memplan record SOURCE: the Python package does them, with the Python of whoever calls.
#include "cli/commands/commands.h"
#include "cli/observe/launch.h"
#include "cli/python/package.h"
#include "estimators/companion/temporary_folder.h"

namespace memplan::cli {

int run_package(const Options& options, const std::vector<std::string>& words) {
  const TemporaryFolder folder;
  std::vector<std::string> all{std::string(options.command->name)};
  all.insert(all.end(), words.begin(), words.end());
  Process process{package_command(find_python({"torch"}), folder.path(), all), {}, {}, true};
  for (const auto& [name, value] : package_environment()) process.environment[name] = value;
  int interrupted = 0;
  const std::vector<Ended> ended = run_processes({process}, 1, interrupted);
  return interrupted ? 128 + interrupted : ended.front().code;
}

}  // namespace memplan::cli
