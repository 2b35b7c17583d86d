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
thread_local bool last_is_not_equal = false;
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

/// Kernels that compare elements: at::native::CompareEqFunctor does == and !=, and its only member says which.
std::unordered_map<const void*, bool>& comparisons() {
  static auto& map = *new std::unordered_map<const void*, bool>;
  return map;
}

cudaError_t launch(const void* kernel, void** arguments) {
  last_kernel = kernel;
  last_is_not_equal = false;
  if (arguments) {
    const std::lock_guard guard(lock);
    // (number of elements, functor, …): at::native::EqOpType is EQ or NE.
    if (comparisons().contains(kernel)) last_is_not_equal = *static_cast<const int*>(arguments[1]) == 1;
  }
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

const char* last_kernel_name() {
  if (!last_kernel) return "";
  const std::lock_guard guard(lock);
  const auto i = names().find(last_kernel);
  return i == names().end() ? "" : i->second;
}

bool next_is_a_size() {
  // Counts that decide the size of a result: of non-zero elements (a sum of int over one block), of what cub's
  // selections and run-length encodings keep.
  const char* name = last_kernel_name();
  if (std::strstr(name, "DeviceReduceSingleTileKernel") || std::strstr(name, "DeviceSelectSweepKernel") ||
      std::strstr(name, "DeviceReduceByKeyKernel") || std::strstr(name, "DeviceUniqueByKeySweepKernel") ||
      std::strstr(name, "UniqueAgent"))
    return true;
  return false;
}

bool next_byte_is_true() {
  // at::native::and_kernel_cuda; of one element all() is a copy of it, and zeros compare equal.
  const char* name = last_kernel_name();
  return std::strstr(name, "and_kernel") || (byte_copied && !last_is_not_equal && std::strstr(name, "CompareEq"));
}

}  // namespace emulated

using namespace emulated;

/// For tests: the mangled name of the kernel that the calling thread launched last.
EMULATED const char* emulated_gpu_last_kernel() { return last_kernel_name(); }

EMULATED void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
EMULATED void __cudaRegisterFatBinaryEnd(void**) {}
EMULATED void __cudaUnregisterFatBinary(void**) {}
EMULATED void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*,
                                     int*) {
  const std::lock_guard guard(lock);
  names()[host] = name;
  if (std::strstr(name, "elementwise_kernel") && std::strstr(name, "CompareEqFunctor")) comparisons()[host] = true;
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

EMULATED cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, std::size_t, cudaStream_t) {
  return launch(kernel, arguments);
}
EMULATED cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, std::size_t, cudaStream_t) {
  return launch(kernel, arguments);
}
EMULATED cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void** arguments) {
  return launch(kernel, arguments);
}
EMULATED cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void** arguments, std::size_t,
                                                 cudaStream_t) {
  return launch(kernel, arguments);
}

EMULATED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  std::memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->binaryVersion = a->ptxVersion = card().image;  // CUB chooses its tuning, and with it scratch sizes, by this
  a->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}

EMULATED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int threads,
                                                                            std::size_t, unsigned) {
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
