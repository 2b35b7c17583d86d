#include "estimators/companion/surroundings.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace memplan {

namespace {

bool runs(const std::string& program) { return access(program.c_str(), X_OK) == 0; }

std::string on_path(const char* name) {
  std::string folders = variable("PATH");
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string program = folders.substr(at, end - at) + "/" + name;
    if (program.front() == '/' && runs(program)) return program;
    at = end + 1;
  }
  return {};
}

}  // namespace

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return out;
}

std::vector<std::string> pythons() {
  std::vector<std::string> out;
  const auto add = [&](const std::string& program) {
    if (!program.empty() && runs(program) && std::find(out.begin(), out.end(), program) == out.end())
      out.push_back(program);
  };
  for (const char* name : {"MEMPLAN_PYTHON", "MEMPLAN_TORCH_PYTHON"})
    if (const std::string named = variable(name); !named.empty()) {
      add(named);
      return out;
    }
  for (const char* folder : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string where = variable(folder); !where.empty()) add(where + "/bin/python3");
  add(on_path("python3"));
  return out;
}

std::vector<std::string> package_folders(const std::string& python) {
  const std::string prefix = std::filesystem::path(python).parent_path().parent_path().string();
  std::vector<std::string> out = matches(prefix + "/lib/python3*/site-packages");
  for (const std::string& debian : matches(prefix + "/lib/python3*/dist-packages")) out.push_back(debian);
  for (const std::string& local : matches(prefix + "/local/lib/python3*/dist-packages")) out.push_back(local);
  if (const std::string home = variable("HOME"); !home.empty())
    for (const std::string& own : matches(home + "/.local/lib/python3*/site-packages")) out.push_back(own);
  return out;
}

std::string cache_folder(const std::string& of) {
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) return cache + "/memplan/" + of;
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.cache/memplan/" + of : std::string();
}

void keep_in_cache(const std::string& path, const std::string& bytes) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::create_directories(fs::path(path).parent_path(), failed);
  const std::string temporary = path + "." + std::to_string(getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << bytes;
  out.close();
  if (out) fs::rename(temporary, path, failed);
  if (!out || failed) fs::remove(temporary, failed);
}

}  // namespace memplan
