// PyTorch and cuDNN open some libraries by name and take functions from that handle, which interposing symbols does not
// reach; so dlopen itself is interposed.
#include <dlfcn.h>

#include <cstring>

#include "emulated.h"

namespace {

using Dlopen = void* (*)(const char*, int) noexcept;  // as <dlfcn.h> has it: a tail call needs no cleanup then

Dlopen real_dlopen() {
  static const auto real = reinterpret_cast<Dlopen>(dlsym(RTLD_NEXT, "dlopen"));
  return real;
}

/// ONNX Runtime opens cuDNN and cuFFT by name and takes their functions from the handle.
bool opened_by_onnxruntime(const char* name, const void* caller) {
  if (std::strncmp(name, "libcudnn.so", 11) != 0 && std::strncmp(name, "libcufft.so", 11) != 0) return false;
  Dl_info from;
  return dladdr(caller, &from) && from.dli_fname && std::strstr(from.dli_fname, "/libonnxruntime");
}

/// The name to open instead of `file`. This library answers to the soname libcuda.so.1.
__attribute__((noinline)) const char* redirected(const char* file, const void* caller) {
  real_dlopen();
  if (!file) return file;
  const char* slash = std::strrchr(file, '/');
  const char* name = slash ? slash + 1 : file;
  if (!std::strncmp(name, "libnvidia-ml.so", 15)) return "libcuda.so.1";
  if (opened_by_onnxruntime(name, caller)) {
    // cuDNN itself is loaded beside: cudnn_graph.cpp asks it for workspaces.
    if (!std::strncmp(name, "libcudnn", 8)) real_dlopen()(file, RTLD_LAZY | RTLD_LOCAL);
    return "libcuda.so.1";
  }
  const bool compiler = !std::strncmp(name, "libnvrtc.so", 11), driver = !std::strncmp(name, "libcuda.so", 10);
  if (!compiler && !driver) return file;
  Dl_info from;
  const bool nvidia = dladdr(caller, &from) && from.dli_fname && std::strstr(from.dli_fname, "/nvidia/");
  if (!nvidia) return compiler ? "libcuda.so.1" : file;
  // The static CUDA runtime inside NVIDIA's own libraries asks for libcuda.so.1 only and must find no driver. cuDNN's
  // run-time compiler asks next for libcuda.so and insists on some driver, of which it calls nothing that matters.
  if (!std::strcmp(name, "libcuda.so")) return "libcuda.so.1";
  return driver ? "libcuda-is-not-here.so.1" : file;
}

}  // namespace

// The call must stay a tail call: glibc takes the caller, whose RUNPATH it searches, from the return address.
EMULATED void* dlopen(const char* file, int flags) {
  return real_dlopen()(redirected(file, __builtin_return_address(0)), flags);
}
