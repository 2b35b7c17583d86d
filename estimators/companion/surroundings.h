// What this machine has that children are made of: variables, Pythons with their packages, a cache.
#pragma once

#include <string>
#include <vector>

namespace memplan {

/// What the environment says; empty where it says nothing.
std::string variable(const char* name);

/// Files that match a shell's pattern, sorted.
std::vector<std::string> matches(const std::string& pattern);

/// The Python that $MEMPLAN_PYTHON (the Python module sets it) or $MEMPLAN_TORCH_PYTHON names, else those of
/// $VIRTUAL_ENV, $CONDA_PREFIX and python3 on PATH, the likeliest first. Nothing is started.
std::vector<std::string> pythons();

/// The folders of packages of a Python. Its path is taken as it is: in a virtual environment it is a link.
std::vector<std::string> package_folders(const std::string& python);

/// $XDG_CACHE_HOME/memplan/`of` or ~/.cache/memplan/`of`, which need not exist; empty where there is no such folder.
std::string cache_folder(const std::string& of);

/// Writes a file of the cache, and its folder, by a temporary file that takes the place of the old one. What cannot be
/// written is no error: it is worked out again.
void keep_in_cache(const std::string& path, const std::string& bytes);

}  // namespace memplan
