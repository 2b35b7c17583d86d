// Device memory: address space that nothing can be read from or written to, handed out as a driver does.
#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "emulated.h"
#include "requests.h"

namespace emulated {

namespace {

// One span of addresses per device. Its end is kept for device symbols (__device__ variables).
constexpr std::uint64_t base = 0x200000000000ull, span = 1ull << 41, for_symbols = 1ull << 36;
constexpr int max_devices = 16;
constexpr std::uint64_t granularity = 2ull << 20;  // of cudaMalloc and cuMemCreate on every card so far

std::mutex lock;

using Ranges = std::map<std::uint64_t, std::uint64_t>;  // address -> size

struct Space {
  Ranges free, allocated, reserved;
  std::uint64_t base = 0, used = 0, peak = 0, symbols = 0;
};

Space& space(int device) {
  static Space all[max_devices];
  Space& s = all[device];
  if (!s.base) {
    s.base = base + span * static_cast<std::uint64_t>(device);
    // Reserved without access: nothing else is placed there, and a host access to device memory faults at once.
    mmap(reinterpret_cast<void*>(s.base), span, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    s.free[s.base] = span - for_symbols;
  }
  return s;
}

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

/// The lowest free address; the caching allocator compares addresses, so their order is part of its behaviour.
std::uint64_t take(Space& s, std::uint64_t size) {
  for (auto i = s.free.begin(); i != s.free.end(); ++i) {
    if (i->second < size) continue;
    const auto [at, room] = *i;
    s.free.erase(i);
    if (room > size) s.free[at + size] = room - size;
    return at;
  }
  return 0;
}

void give_back(Space& s, std::uint64_t at, std::uint64_t size) {
  auto i = s.free.emplace(at, size).first;
  if (auto next = std::next(i); next != s.free.end() && at + size == next->first) {
    i->second += next->second;
    s.free.erase(next);
  }
  if (i == s.free.begin()) return;
  if (auto before = std::prev(i); before->first + before->second == at) {
    before->second += i->second;
    s.free.erase(i);
  }
}

bool charge(Space& s, std::uint64_t size) {
  if (s.used + size + context_bytes() > total_bytes()) return false;
  s.used += size;
  if (s.used > s.peak) s.peak = s.used;
  return true;
}

Ranges& pinned() {
  static Ranges ranges;
  return ranges;
}

/// The range that contains p, or nullptr.
const Ranges::value_type* find(const Ranges& ranges, const void* p) {
  const auto at = reinterpret_cast<std::uint64_t>(p);
  auto i = ranges.upper_bound(at);
  if (i == ranges.begin()) return nullptr;
  --i;
  return at < i->first + i->second ? &*i : nullptr;
}

struct Physical {
  int device;
  std::uint64_t size;
};

}  // namespace

bool is_device(const void* p) {
  const auto at = reinterpret_cast<std::uint64_t>(p);
  return at >= base && at < base + span * max_devices;
}

int device_of(const void* p) { return static_cast<int>((reinterpret_cast<std::uint64_t>(p) - base) / span); }

std::uint64_t used_bytes(int device) {
  const std::lock_guard guard(lock);
  return space(device).used;
}

std::uint64_t peak_bytes(int device) {
  const std::lock_guard guard(lock);
  return space(device).peak;
}

// Virtual memory management: what PyTorch's expandable segments are built on.

CUresult reserve_addresses(CUdeviceptr* p, std::size_t size, std::size_t, CUdeviceptr, unsigned long long) {
  const std::lock_guard guard(lock);
  Space& s = space(current_device());
  const std::uint64_t whole = round_up(size, granularity), at = take(s, whole);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  s.reserved[at] = whole;
  *p = at;
  return CUDA_SUCCESS;
}

CUresult free_addresses(CUdeviceptr p, std::size_t) {
  const std::lock_guard guard(lock);
  Space& s = space(device_of(reinterpret_cast<void*>(p)));
  const auto i = s.reserved.find(p);
  if (i == s.reserved.end()) return CUDA_ERROR_INVALID_VALUE;
  give_back(s, i->first, i->second);
  s.reserved.erase(i);
  return CUDA_SUCCESS;
}

CUresult create_physical(CUmemGenericAllocationHandle* h, std::size_t size, const CUmemAllocationProp* prop,
                         unsigned long long) {
  const std::lock_guard guard(lock);
  const int device = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : current_device();
  if (size % granularity) return CUDA_ERROR_INVALID_VALUE;
  if (!charge(space(device), size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *h = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{device, size});
  return CUDA_SUCCESS;
}

CUresult release_physical(CUmemGenericAllocationHandle h) {
  const std::lock_guard guard(lock);
  auto* p = reinterpret_cast<Physical*>(h);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  space(p->device).used -= p->size;
  delete p;
  return CUDA_SUCCESS;
}

CUresult allocation_granularity(std::size_t* out, const CUmemAllocationProp*, int) {
  *out = granularity;
  return CUDA_SUCCESS;
}

CUresult address_range(CUdeviceptr* start, std::size_t* size, CUdeviceptr p) {
  const auto* at = reinterpret_cast<const void*>(p);
  if (!is_device(at)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard guard(lock);
  const auto* range = find(space(device_of(at)).allocated, at);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  if (start) *start = range->first;
  if (size) *size = range->second;
  return CUDA_SUCCESS;
}

}  // namespace emulated

using namespace emulated;

EMULATED cudaError_t cudaMalloc(void** p, std::size_t size) {
  const std::lock_guard guard(lock);
  *p = nullptr;
  if (!size) return cudaSuccess;
  Space& s = space(current_device());
  const std::uint64_t whole = round_up(size, granularity);
  if (!charge(s, whole)) return failed(cudaErrorMemoryAllocation);
  const std::uint64_t at = take(s, whole);
  s.allocated[at] = whole;
  *p = reinterpret_cast<void*>(at);
  log_request("malloc", size, at);
  return cudaSuccess;
}

EMULATED cudaError_t cudaFree(void* p) {
  if (!p || !is_device(p)) return cudaSuccess;
  const std::lock_guard guard(lock);
  Space& s = space(device_of(p));
  const auto i = s.allocated.find(reinterpret_cast<std::uint64_t>(p));
  if (i == s.allocated.end()) return failed(cudaErrorInvalidValue);
  s.used -= i->second;
  log_request("free", 0, i->first);
  give_back(s, i->first, i->second);
  s.allocated.erase(i);
  return cudaSuccess;
}

EMULATED cudaError_t cudaMallocAsync(void** p, std::size_t size, cudaStream_t) { return cudaMalloc(p, size); }
EMULATED cudaError_t cudaMallocFromPoolAsync(void** p, std::size_t size, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(p, size);
}
EMULATED cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
EMULATED cudaError_t cudaMallocManaged(void** p, std::size_t size, unsigned) { return cudaMalloc(p, size); }

EMULATED cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = total_bytes();
  *free = total_bytes() - context_bytes() - used_bytes(current_device());
  return cudaSuccess;
}

/// For tests: bytes that the process holds on a device, without the context.
EMULATED std::uint64_t emulated_gpu_used(int device) { return used_bytes(device); }
EMULATED std::uint64_t emulated_gpu_peak(int device) { return peak_bytes(device); }

EMULATED cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
  static std::map<std::pair<int, const void*>, std::uint64_t> known;
  const std::lock_guard guard(lock);
  Space& s = space(current_device());
  std::uint64_t& at = known[{current_device(), symbol}];
  if (!at) {
    at = s.base + span - for_symbols + s.symbols;
    s.symbols += 1 << 20;
  }
  *p = reinterpret_cast<void*>(at);
  return cudaSuccess;
}

EMULATED cudaError_t cudaHostAlloc(void** p, std::size_t size, unsigned) {
  *p = std::aligned_alloc(4096, round_up(size ? size : 1, 4096));
  if (!*p) return failed(cudaErrorMemoryAllocation);
  const std::lock_guard guard(lock);
  pinned()[reinterpret_cast<std::uint64_t>(*p)] = size;
  return cudaSuccess;
}

EMULATED cudaError_t cudaMallocHost(void** p, std::size_t size) { return cudaHostAlloc(p, size, 0); }

EMULATED cudaError_t cudaHostRegister(void* p, std::size_t size, unsigned) {
  const std::lock_guard guard(lock);
  pinned()[reinterpret_cast<std::uint64_t>(p)] = size;
  return cudaSuccess;
}

EMULATED cudaError_t cudaHostUnregister(void* p) {
  const std::lock_guard guard(lock);
  pinned().erase(reinterpret_cast<std::uint64_t>(p));
  return cudaSuccess;
}

EMULATED cudaError_t cudaFreeHost(void* p) {
  cudaHostUnregister(p);
  std::free(p);
  return cudaSuccess;
}

EMULATED cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

EMULATED cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  std::memset(a, 0, offsetof(cudaPointerAttributes, reserved));  // CUDA 12 ends there
  if (is_device(p)) {
    a->type = cudaMemoryTypeDevice;
    a->device = device_of(p);
    a->devicePointer = const_cast<void*>(p);
    return cudaSuccess;
  }
  const std::lock_guard guard(lock);
  a->hostPointer = const_cast<void*>(p);
  a->type = find(pinned(), p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  if (a->type == cudaMemoryTypeHost)
    a->devicePointer = a->hostPointer;
  else
    a->device = -1;
  return cudaSuccess;
}

EMULATED cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(0x4000ull + static_cast<unsigned>(device));
  return cudaSuccess;
}

EMULATED cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  int device = static_cast<int>(reinterpret_cast<std::uint64_t>(pool) - 0x4000);
  if (device < 0 || device >= max_devices) device = current_device();
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      *static_cast<int*>(value) = 1;
      break;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<std::uint64_t*>(value) = used_bytes(device);
      break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<std::uint64_t*>(value) = peak_bytes(device);
      break;
    default:
      *static_cast<std::uint64_t*>(value) = 0;
  }
  return cudaSuccess;
}
