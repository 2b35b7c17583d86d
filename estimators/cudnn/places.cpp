#include "estimators/cudnn/places.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>

#include "estimators/base/error.h"
#include "estimators/companion/companion.h"

namespace memplan {

namespace {

namespace fs = std::filesystem;

constexpr const char* library_name = "libcudnn.so.9";

bool runs(const std::string& program) { return access(program.c_str(), X_OK) == 0; }

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return out;
}

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

/// The folders of packages of a Python. Its path is taken as it is: in a virtual environment it is a link.
std::vector<std::string> package_folders(const std::string& python) {
  const std::string prefix = fs::path(python).parent_path().parent_path().string();
  std::vector<std::string> out = matches(prefix + "/lib/python3*/site-packages");
  for (const std::string& debian : matches(prefix + "/lib/python3*/dist-packages")) out.push_back(debian);
  for (const std::string& local : matches(prefix + "/local/lib/python3*/dist-packages")) out.push_back(local);
  if (const std::string home = variable("HOME"); !home.empty())
    for (const std::string& own : matches(home + "/.local/lib/python3*/site-packages")) out.push_back(own);
  return out;
}

/// "libcudnn.so.9" is a link to "libcudnn.so.9.19.0" where a package of the system or of conda brought it.
bool is_of(const std::string& library, std::string_view version) {
  char target[PATH_MAX];
  const ssize_t n = readlink(library.c_str(), target, sizeof target);
  return n > 0 && std::string_view(target, static_cast<std::size_t>(n)).find("so." + std::string(version) + ".") !=
                      std::string_view::npos;
}

}  // namespace

std::vector<CudnnPlace> cudnn_places(std::string_view version) {
  std::vector<CudnnPlace> out;
  const auto add = [&](const std::string& python, const std::string& library) {
    if (access(library.c_str(), R_OK) == 0) out.push_back({python, library});
  };
  for (const std::string& python : pythons()) {
    for (const std::string& packages : package_folders(python))
      if (!matches(packages + "/nvidia_cudnn_cu1?-" + std::string(version) + ".*.dist-info").empty())
        add(python, packages + "/nvidia/cudnn/lib/" + library_name);
    const std::string conda = fs::path(python).parent_path().parent_path().string() + "/lib/" + library_name;
    if (is_of(conda, version)) add(python, conda);
  }
  return out;
}

std::vector<CudnnPlace> named_cudnn(const std::string& path) {
  std::error_code ignored;
  const std::string library = fs::is_directory(path, ignored) ? path + "/" + library_name : path;
  if (access(library.c_str(), R_OK) != 0 || fs::is_directory(library, ignored))
    fail(ErrorKind::usage, "there is no cuDNN", library,
         std::string("name the folder that has ") + library_name + ", as in site-packages/nvidia/cudnn/lib");
  const auto hosts = pythons();
  if (hosts.empty()) return {};
  return {{hosts.front(), fs::absolute(library, ignored).string()}};
}

}  // namespace memplan
