// Kernels: registered, asked about, launched, never run.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "emulated.h"

namespace emulated {

namespace {

std::mutex lock;
std::atomic<std::uint64_t> launched{0};
thread_local const void* last_kernel = nullptr;
thread_local bool byte_copied = false;  // device to device, since then

/// Host stub -> mangled name, as PyTorch's fat binaries register them when they are loaded.
std::unordered_map<const void*, const char*>& names() {
  static auto& map = *new std::unordered_map<const void*, const char*>;
  return map;
}

thread_local struct {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
} pushed;

cudaError_t launch(const void* kernel) {
  last_kernel = kernel;
  byte_copied = false;
  count_launch();
  return cudaSuccess;
}

int resident_blocks(int threads) {
  if (threads <= 0) return 1;
  return std::clamp(card().threads_per_multiprocessor / threads, 1, card().blocks_per_multiprocessor);
}

}  // namespace

std::uint64_t launches() { return launched; }
void count_launch() { ++launched; }

void byte_was_copied() { byte_copied = true; }

bool next_byte_is_true() {
  if (!last_kernel) return false;
  const std::lock_guard guard(lock);
  const auto i = names().find(last_kernel);
  if (i == names().end()) return false;
  // at::native::and_kernel_cuda; of one element all() is a copy of it, and zeros compare equal.
  return std::strstr(i->second, "and_kernel") || (byte_copied && std::strstr(i->second, "CompareEq"));
}

}  // namespace emulated

using namespace emulated;

EMULATED void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
EMULATED void __cudaRegisterFatBinaryEnd(void**) {}
EMULATED void __cudaUnregisterFatBinary(void**) {}
EMULATED void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  const std::lock_guard guard(lock);
  names()[host] = name;
}
EMULATED void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
EMULATED char __cudaInitModule(void**) { return 1; }

EMULATED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  pushed = {grid, block, shared, static_cast<cudaStream_t>(stream)};
  return 0;
}

EMULATED cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

EMULATED cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

EMULATED cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t) { return launch(kernel); }
EMULATED cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, std::size_t, cudaStream_t) { return launch(kernel); }
EMULATED cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) { return launch(kernel); }
EMULATED cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, std::size_t, cudaStream_t) { return launch(kernel); }

EMULATED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  std::memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->binaryVersion = a->ptxVersion = card().image;  // CUB chooses its tuning, and with it scratch sizes, by this
  a->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}

EMULATED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int threads, std::size_t, unsigned) {
  *n = resident_blocks(threads);
  return cudaSuccess;
}
EMULATED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int threads, std::size_t) {
  *n = resident_blocks(threads);
  return cudaSuccess;
}
EMULATED cudaError_t cudaOccupancyMaxActiveClusters(int* n, const void*, const cudaLaunchConfig_t*) {
  *n = card().multiprocessors / 2;
  return cudaSuccess;
}
EMULATED cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* n, const void*, int, int) {
  *n = card().shared_optin;
  return cudaSuccess;
}
