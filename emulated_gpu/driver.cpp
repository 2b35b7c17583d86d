// The driver API: the functions that matter by name (cudaGetDriverEntryPoint, cuGetProcAddress) and as symbols, because
// this library carries the soname libcuda.so.1, which PyTorch's NVRTC shim links.
#include <string_view>
#include <unordered_map>

#include "emulated.h"
#include "memory.h"

// cuda.h renames some functions to their versioned symbols; here the symbols themselves are defined.
#undef cuGetProcAddress
#undef cuMemGetInfo
#undef cuMemGetAddressRange
#undef cuModuleGetGlobal

using namespace emulated;

namespace {

CUresult succeed() { return CUDA_SUCCESS; }

template <class T>
CUresult create(T* out) {
  *out = handle<T>();
  return CUDA_SUCCESS;
}

}  // namespace

EMULATED CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EMULATED CUresult cuDriverGetVersion(int* v) {
  *v = versions().cuda;
  return CUDA_SUCCESS;
}
EMULATED CUresult cuDeviceGetCount(int* n) {
  *n = device_count();
  return CUDA_SUCCESS;
}
EMULATED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
EMULATED CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute attribute, CUdevice device) {
  return static_cast<CUresult>(cudaDeviceGetAttribute(v, static_cast<cudaDeviceAttr>(attribute), device));
}

// A null current context makes PyTorch warn.
EMULATED CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = reinterpret_cast<CUcontext>(0x1000ull + static_cast<unsigned>(current_device()));
  return CUDA_SUCCESS;
}
EMULATED CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EMULATED CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice device) {
  *c = reinterpret_cast<CUcontext>(0x1000ull + static_cast<unsigned>(device));
  return CUDA_SUCCESS;
}
EMULATED CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  if (flags) *flags = 0;
  if (active) *active = 1;
  return CUDA_SUCCESS;
}

EMULATED CUresult cuGetErrorString(CUresult e, const char** text) {
  *text = e == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
          : e == CUDA_SUCCESS           ? "no error"
                                        : "error of the emulated GPU";
  return CUDA_SUCCESS;
}

EMULATED CUresult cuGetErrorName(CUresult e, const char** text) { return cuGetErrorString(e, text); }

EMULATED CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr p) {
  const auto* at = reinterpret_cast<const void*>(p);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = is_device(at) ? device_of(at) : -1;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = is_device(at) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return address_range(static_cast<CUdeviceptr*>(out), nullptr, p);
    default:
      *static_cast<int*>(out) = 0;
  }
  return CUDA_SUCCESS;
}

EMULATED CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return static_cast<CUresult>(cudaMemGetInfo(free, total));
}
EMULATED CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, std::size_t* size, CUdeviceptr p) {
  return address_range(start, size, p);
}

// Modules and kernels of code that was compiled at run time.
EMULATED CUresult cuModuleLoadData(CUmodule* m, const void*) { return create(m); }
EMULATED CUresult cuModuleLoadDataEx(CUmodule* m, const void*, unsigned, CUjit_option*, void**) { return create(m); }
EMULATED CUresult cuModuleGetFunction(CUfunction* f, CUmodule, const char*) { return create(f); }
EMULATED CUresult cuModuleGetGlobal_v2(CUdeviceptr* p, std::size_t* size, CUmodule, const char*) {
  void* at;
  cudaGetSymbolAddress(&at, p);
  *p = reinterpret_cast<CUdeviceptr>(at);
  if (size) *size = 1 << 20;
  return CUDA_SUCCESS;
}
EMULATED CUresult cuLibraryLoadData(CUlibrary* l, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                    void**, unsigned) {
  return create(l);
}
EMULATED CUresult cuLibraryGetKernel(CUkernel* k, CUlibrary, const char*) { return create(k); }
EMULATED CUresult cuLibraryGetModule(CUmodule* m, CUlibrary) { return create(m); }
EMULATED CUresult cuLibraryGetKernelCount(unsigned* n, CUlibrary) {
  *n = 1;
  return CUDA_SUCCESS;
}
EMULATED CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned n, CUlibrary) {
  for (unsigned i = 0; i < n; ++i) create(&kernels[i]);
  return CUDA_SUCCESS;
}
EMULATED CUresult cuKernelGetFunction(CUfunction* f, CUkernel) { return create(f); }
EMULATED CUresult cuFuncGetAttribute(int* v, CUfunction_attribute, CUfunction) {
  *v = 0;
  return CUDA_SUCCESS;
}
EMULATED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction, int, std::size_t) {
  *n = 1;
  return CUDA_SUCCESS;
}

namespace emulated {

void* driver_function(const char* name) {
  static const std::unordered_map<std::string_view, void*> table = {
      {"cuMemAddressReserve", reinterpret_cast<void*>(reserve_addresses)},
      {"cuMemAddressFree", reinterpret_cast<void*>(free_addresses)},
      {"cuMemCreate", reinterpret_cast<void*>(create_physical)},
      {"cuMemRelease", reinterpret_cast<void*>(release_physical)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(allocation_granularity)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(cuMemGetAddressRange_v2)},
      {"cuMemGetAddressRange_v2", reinterpret_cast<void*>(cuMemGetAddressRange_v2)},
      {"cuMemGetInfo", reinterpret_cast<void*>(cuMemGetInfo_v2)},
      {"cuMemGetInfo_v2", reinterpret_cast<void*>(cuMemGetInfo_v2)},
      {"cuGetErrorString", reinterpret_cast<void*>(cuGetErrorString)},
      {"cuGetErrorName", reinterpret_cast<void*>(cuGetErrorName)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(cuDeviceGetAttribute)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(cuDeviceGetCount)},
      {"cuDeviceGet", reinterpret_cast<void*>(cuDeviceGet)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(cuDriverGetVersion)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(cuCtxGetCurrent)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(cuDevicePrimaryCtxRetain)},
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(cuDevicePrimaryCtxGetState)},
      {"cuPointerGetAttribute", reinterpret_cast<void*>(cuPointerGetAttribute)},
  };
  const auto i = table.find(name);
  return i == table.end() ? reinterpret_cast<void*>(succeed) : i->second;
}

}  // namespace emulated

EMULATED cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                      cudaDriverEntryPointQueryResult* result) {
  if (result) *result = cudaDriverEntryPointSuccess;
  *function = driver_function(name);
  return cudaSuccess;
}
EMULATED cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, 0, result);
}
EMULATED CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                      CUdriverProcAddressQueryResult* result) {
  if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
  *function = driver_function(name);
  return CUDA_SUCCESS;
}
