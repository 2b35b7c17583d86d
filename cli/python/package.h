// The Python of whoever calls: found, and started with the package that memplan carries (python/memplan).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace memplan::cli {

/// A Python with these packages: $MEMPLAN_TORCH_PYTHON, the one beside the program (a wheel puts memplan into its
/// environment), python3 or python. Failure(usage) with the command that installs what is missing when none has them;
/// `why` is what they are wanted for.
std::string find_python(const std::vector<std::string>& packages,
                        const char* why = "the model has to be exported first");

/// `python -m memplan WORDS` with memplan's own package, which is written into `folder`. The words go to no shell.
std::vector<std::string> package_command(const std::string& python, const std::string& folder,
                                         const std::vector<std::string>& words);

/// What the package needs to know of this program.
std::vector<std::pair<std::string, std::string>> package_environment();

}  // namespace memplan::cli
