// What the files of the emulated GPU share. One device is address space and properties; nothing is ever computed.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>

/// A symbol that PyTorch or a library resolves here instead of in NVIDIA's.
#define EMULATED extern "C" __attribute__((visibility("default")))

/// Fresh, never null, never a valid address: whatever is "created" and only passed around.
EMULATED void* emulated_gpu_handle();

/// Notes that a size was asked for which only a device knows; what is answered is too little. `what` must live on.
EMULATED void emulated_gpu_unknown(const char* what);

namespace emulated {

/// The properties that PyTorch's kernels, its backend selection and cuDNN's heuristics look at.
struct Card {
  const char* key;
  const char* name;
  int major, minor;
  int multiprocessors;
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  std::size_t shared_optin, shared_per_multiprocessor;  ///< bytes
  int l2;                                               ///< bytes
  std::uint64_t total;                                  ///< bytes, as cudaMemGetInfo reports
  int image;  ///< compute capability of the code that runs: the closest one that PyTorch's wheel carries
};

/// The card of EMULATED_GPU (default "h100"); ends the process when there is no such card, because figures of
/// another card would be taken for the wanted ones.
const Card& card();
int device_count();  ///< EMULATED_GPU_COUNT (default LOCAL_WORLD_SIZE, else 1), or fewer by CUDA_VISIBLE_DEVICES
std::uint64_t total_bytes();    ///< EMULATED_GPU_TOTAL, default the card's
std::uint64_t context_bytes();  ///< EMULATED_GPU_CONTEXT: what the CUDA context takes off the free memory

/// "512M", "80G" (binary) or plain bytes from the environment.
std::uint64_t bytes_from_environment(const char* name, std::uint64_t otherwise);

/// As the libraries' own functions say: 13000, 91900, 130100, 22809.
struct Versions {
  int cuda;
  std::size_t cudnn, cublas;
  int nccl;
};
const Versions& versions();

/// The calling thread's device, and the error that cudaGetLastError returns and clears.
int& current_device();
cudaError_t failed(cudaError_t error);

/// Device memory.
bool is_device(const void* p);
int device_of(const void* p);
std::uint64_t used_bytes(int device);
std::uint64_t peak_bytes(int device);

/// How many kernels were launched so far.
std::uint64_t launches();
void count_launch();

/// The mangled name of the calling thread's last kernel, "" before the first one.
const char* last_kernel_name();

/// Whether a byte that is read from the device now is the answer of an all(): what the thread's last kernel was tells
/// it, and that one byte was copied from device to device after it.
bool next_byte_is_true();
void byte_was_copied();

/// Whether what is read from the device now says how large a result will be (nonzero, unique, a mask as an index).
bool next_is_a_size();

/// Whether a function of PyTorch that reads the size of its result is on the calling thread's stack.
bool caller_needs_a_size();

/// The driver's function of this name; for names that have no meaning here one that succeeds and does nothing.
void* driver_function(const char* name);

template <class T>
T handle() {
  return reinterpret_cast<T>(emulated_gpu_handle());
}

}  // namespace emulated
