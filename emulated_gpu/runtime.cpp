// The runtime's devices, their properties, and errors.
#include <cstdio>
#include <cstring>

#include "cuda12.h"
#include "emulated.h"

namespace emulated {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// `P` is the structure of CUDA 12 or of CUDA 13: the fields that matter are called alike.
template <class P>
P properties(int device) {
  const Card& c = card();
  P p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "%s", c.name);
  for (int i = 0; i < 16; ++i) p.uuid.bytes[i] = static_cast<char>(i + device * 16 + 1);
  p.totalGlobalMem = total_bytes();
  p.major = c.major;
  p.minor = c.minor;
  p.multiProcessorCount = c.multiprocessors;
  p.maxThreadsPerMultiProcessor = c.threads_per_multiprocessor;
  p.maxBlocksPerMultiProcessor = c.blocks_per_multiprocessor;
  p.sharedMemPerBlock = 49152;
  p.sharedMemPerBlockOptin = c.shared_optin;
  p.sharedMemPerMultiprocessor = c.shared_per_multiprocessor;
  p.reservedSharedMemPerBlock = 1024;
  p.l2CacheSize = c.l2;
  p.persistingL2CacheMaxSize = c.l2 / 8 * 5;
  p.accessPolicyMaxWindowSize = 134213632;
  p.clusterLaunch = c.major >= 9;
  p.pciBusID = device + 1;
  // The rest is the same on every card of these generations.
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.textureAlignment = p.surfaceAlignment = 512;
  p.texturePitchAlignment = 32;
  p.asyncEngineCount = 3;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = 1;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.managedMemory = p.concurrentManagedAccess = p.computePreemptionSupported = p.canUseHostPointerForRegisteredMem = 1;
  p.cooperativeLaunch = p.hostRegisterSupported = p.memoryPoolsSupported = p.ipcEventSupported = 1;
  return p;
}

}  // namespace

cudaError_t failed(cudaError_t error) { return last_error = error; }

}  // namespace emulated

using namespace emulated;

EMULATED cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
EMULATED cudaError_t cudaPeekAtLastError() { return last_error; }

EMULATED const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNotSupported:
      return "emulated GPU: the size of this result depends on values on the device, and there are none (nonzero, "
             "unique, masked_select, a mask as "
             "an index, bincount, one_hot without num_classes, repeat_interleave without output_size). "
             "EMULATED_GPU_SIZES=empty goes on with an empty result";
    default:
      return "error of the emulated GPU";
  }
}
EMULATED const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    default:
      return "cudaErrorUnknown";
  }
}

EMULATED cudaError_t cudaGetDeviceCount(int* n) {
  *n = device_count();
  return cudaSuccess;
}
EMULATED cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
EMULATED cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return failed(cudaErrorInvalidDevice);
  current_device() = device;
  return cudaSuccess;
}
EMULATED cudaError_t cudaDeviceCanAccessPeer(int* yes, int, int) {
  *yes = 1;
  return cudaSuccess;
}
EMULATED cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int device) {
  std::snprintf(out, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
EMULATED cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
EMULATED cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  *p = properties<cudaDeviceProp>(device);
  return cudaSuccess;
}
// PyTorch for CUDA 12 asks by this name.
EMULATED cudaError_t cudaGetDeviceProperties_v2(Cuda12DeviceProp* p, int device) {
  *p = properties<Cuda12DeviceProp>(device);
  return cudaSuccess;
}

EMULATED cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr attribute, int device) {
  const Card& c = card();
  switch (static_cast<int>(attribute)) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *v = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *v = 64;
      break;
    case cudaDevAttrMaxGridDimX:
      *v = 2147483647;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *v = 65535;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *v = 49152;
      break;
    case cudaDevAttrTotalConstantMemory:
      *v = 65536;
      break;
    case cudaDevAttrWarpSize:
      *v = 32;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *v = 65536;
      break;
    case cudaDevAttrClockRate:
      *v = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *v = 2619000;
      break;
    case cudaDevAttrMultiProcessorCount:
      *v = c.multiprocessors;
      break;
    case cudaDevAttrL2CacheSize:
      *v = c.l2;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *v = c.threads_per_multiprocessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *v = c.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *v = c.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *v = static_cast<int>(c.shared_per_multiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *v = static_cast<int>(c.shared_optin);
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *v = 1024;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *v = c.blocks_per_multiprocessor;
      break;
    case cudaDevAttrClusterLaunch:
      *v = c.major >= 9;
      break;
    case cudaDevAttrPciBusId:
      *v = device + 1;
      break;
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      *v = 0;
      break;
    default:
      *v = 1;  // what is left are capabilities
  }
  return cudaSuccess;
}
