#include "memplan_torch/libraries.h"

#include <ATen/Version.h>
#include <c10/core/DeviceType.h>
#include <dlfcn.h>

namespace memplan::torch_side {

std::string library_version() {
  const std::string config = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const auto at = config.find(key);
  return at == std::string::npos ? std::string()
                                 : config.substr(at + key.size(), config.find_first_of(", \n", at) - at - key.size());
}

std::string open_cuda() {
  static const std::string problem = [] {
    // Beside the libtorch_cpu that is in use, wherever that was found.
    Dl_info info{};
    std::string path = "libtorch_cuda.so";
    if (dladdr(reinterpret_cast<void*>(&at::show_config), &info) && info.dli_fname) {
      const std::string cpu = info.dli_fname;
      if (const auto slash = cpu.rfind('/'); slash != std::string::npos) path = cpu.substr(0, slash + 1) + path;
    }
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return std::string();
    const char* why = dlerror();
    return std::string(why ? why : "unknown");
  }();
  return problem;
}

}  // namespace memplan::torch_side
