// Which versions of NVIDIA's libraries lie in this process. One emulated GPU serves every PyTorch of symbols.txt, so
// what a version is asked for is that of the library that PyTorch brought (it decides, for one, whether cuDNN's
// attention is taken).
#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <nccl.h>

#include "emulated.h"

namespace emulated {

namespace {

/// A function of the first of these libraries that is loaded, from the library itself and not from here.
template <class F>
F real(std::initializer_list<const char*> libraries, const char* name) {
  for (const char* library : libraries)
    if (void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      if (void* found = dlsym(handle, name)) return reinterpret_cast<F>(found);
  return nullptr;
}

Versions look() {
  Versions v{CUDART_VERSION, CUDNN_VERSION, CUBLAS_VERSION, NCCL_VERSION_CODE};
  if (const auto f =
          real<decltype(&cudaRuntimeGetVersion)>({"libcudart.so.13", "libcudart.so.12"}, "cudaRuntimeGetVersion"))
    f(&v.cuda);
  if (const auto f = real<decltype(&cudnnGetVersion)>({"libcudnn.so.9"}, "cudnnGetVersion")) v.cudnn = f();
  if (const auto f =
          real<decltype(&cublasLtGetVersion)>({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion"))
    v.cublas = f();
  if (const auto f = real<decltype(&ncclGetVersion)>({"libnccl.so.2"}, "ncclGetVersion")) f(&v.nccl);
  return v;
}

}  // namespace

const Versions& versions() {
  static const Versions v = look();
  return v;
}

}  // namespace emulated

using namespace emulated;

EMULATED cudaError_t cudaDriverGetVersion(int* v) {
  *v = versions().cuda;
  return cudaSuccess;
}
EMULATED cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = versions().cuda;
  return cudaSuccess;
}
EMULATED std::size_t cudnnGetVersion() { return versions().cudnn; }
EMULATED std::size_t cudnnGetCudartVersion() { return static_cast<std::size_t>(versions().cuda); }
EMULATED cudnnStatus_t cudnnGetProperty(libraryPropertyType what, int* v) {
  const auto cudnn = static_cast<int>(versions().cudnn);
  *v = what == MAJOR_VERSION ? cudnn / 10000 : what == MINOR_VERSION ? cudnn % 10000 / 100 : cudnn % 100;
  return CUDNN_STATUS_SUCCESS;
}
EMULATED std::size_t cublasLtGetVersion() { return versions().cublas; }
EMULATED ncclResult_t ncclGetVersion(int* v) {
  *v = versions().nccl;
  return ncclSuccess;
}
