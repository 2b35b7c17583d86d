// NCCL: this process is one rank of a job whose other ranks do not exist.
#include <nccl.h>

#include <atomic>
#include <cstring>

#include "emulated.h"

using namespace emulated;

namespace {

struct Communicator {
  int size, rank, device;
};

/// Groups of more than one rank that talked: on a GPU each has buffers of NCCL's own.
std::atomic<int> communicators{0};

ncclResult_t create(ncclComm_t* out, int size, int rank) {
  if (size > 1) ++communicators;
  *out = reinterpret_cast<ncclComm_t>(new Communicator{size, rank, current_device()});
  return ncclSuccess;
}

const Communicator& of(ncclComm_t c) { return *reinterpret_cast<const Communicator*>(c); }

}  // namespace

EMULATED int emulated_gpu_communicators() { return communicators; }

EMULATED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return ncclSuccess;
}
EMULATED ncclResult_t ncclCommInitRank(ncclComm_t* c, int size, ncclUniqueId, int rank) {
  return create(c, size, rank);
}
EMULATED ncclResult_t ncclCommInitRankConfig(ncclComm_t* c, int size, ncclUniqueId, int rank, ncclConfig_t*) {
  return create(c, size, rank);
}
EMULATED ncclResult_t ncclCommInitRankScalable(ncclComm_t* c, int size, int rank, int, ncclUniqueId*, ncclConfig_t*) {
  return create(c, size, rank);
}
EMULATED ncclResult_t ncclCommInitAll(ncclComm_t* c, int size, const int*) {
  for (int i = 0; i < size; ++i) create(&c[i], size, i);
  return ncclSuccess;
}
EMULATED ncclResult_t ncclCommSplit(ncclComm_t c, int, int, ncclComm_t* out, ncclConfig_t*) {
  return create(out, of(c).size, of(c).rank);
}
EMULATED ncclResult_t ncclCommCount(const ncclComm_t c, int* n) {
  *n = of(c).size;
  return ncclSuccess;
}
EMULATED ncclResult_t ncclCommUserRank(const ncclComm_t c, int* n) {
  *n = of(c).rank;
  return ncclSuccess;
}
EMULATED ncclResult_t ncclCommCuDevice(const ncclComm_t c, int* n) {
  *n = of(c).device;
  return ncclSuccess;
}
EMULATED ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* e) {
  *e = ncclSuccess;
  return ncclSuccess;
}
EMULATED const char* ncclGetErrorString(ncclResult_t) { return "error of the emulated GPU"; }
EMULATED const char* ncclGetLastError(ncclComm_t) { return ""; }
EMULATED ncclResult_t ncclMemAlloc(void** p, std::size_t size) {
  return cudaMalloc(p, size) ? ncclSystemError : ncclSuccess;
}
EMULATED ncclResult_t ncclMemFree(void* p) {
  cudaFree(p);
  return ncclSuccess;
}
EMULATED ncclResult_t ncclCommRegister(const ncclComm_t, void*, std::size_t, void** h) {
  *h = emulated_gpu_handle();
  return ncclSuccess;
}
