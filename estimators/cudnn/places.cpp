#include "estimators/cudnn/places.h"

#include <unistd.h>

#include <climits>
#include <filesystem>

#include "estimators/base/error.h"
#include "estimators/companion/surroundings.h"

namespace memplan {

namespace {

namespace fs = std::filesystem;

constexpr const char* library_name = "libcudnn.so.9";

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
