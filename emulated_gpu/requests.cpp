// Every request that reaches the driver, and, for ONNX Runtime, every one that reaches its allocator.
#include "requests.h"

#include <cstdio>
#include <cstdlib>

#include "emulated.h"

namespace emulated {

void log_request(const char* what, std::uint64_t size, std::uint64_t at) {
  static std::FILE* const file = [] {
    const char* name = std::getenv("EMULATED_GPU_REQUESTS");
    return name && *name ? std::fopen(name, "w") : nullptr;
  }();
  if (!file) return;
  std::fprintf(file, "%s %llu %llx\n", what, static_cast<unsigned long long>(size),
               static_cast<unsigned long long>(at));
  std::fflush(file);
}

}  // namespace emulated

/// A line of the caller's own in that file, to tell phases apart.
EMULATED void emulated_gpu_mark(const char* text) { emulated::log_request(text, 0, 0); }

// For the options gpu_external_alloc and gpu_external_free of ONNX Runtime's CUDA provider: with them nothing is kept
// in its arena, so that the log has every request of kernels and of the planner.

EMULATED void* emulated_gpu_external_alloc(std::size_t size) {
  void* p = nullptr;
  cudaMalloc(&p, size);
  return p;
}

EMULATED void emulated_gpu_external_free(void* p) { cudaFree(p); }
