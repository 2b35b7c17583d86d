// Streams, events and graphs: everything is finished at once. Captures are tracked, because PyTorch's allocator
// behaves differently inside of one.
#include <cstring>
#include <map>
#include <mutex>

#include "emulated.h"

namespace emulated {

namespace {

std::mutex lock;
std::map<cudaStream_t, std::uint64_t> captures;  // stream -> id of its capture
std::uint64_t next_capture = 1;
std::atomic<int> capturing{0};  // so that the usual case needs no lock

template <class T>
cudaError_t create(T* out) {
  *out = handle<T>();
  return cudaSuccess;
}

}  // namespace

}  // namespace emulated

using namespace emulated;

EMULATED cudaError_t cudaEventCreate(cudaEvent_t* e) { return create(e); }
EMULATED cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return create(e); }
EMULATED cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 0.1f;
  return cudaSuccess;
}
EMULATED cudaError_t cudaStreamCreate(cudaStream_t* s) { return create(s); }
EMULATED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return create(s); }
EMULATED cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return create(s); }
EMULATED cudaError_t cudaStreamGetPriority(cudaStream_t, int* p) {
  *p = 0;
  return cudaSuccess;
}

EMULATED cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                                              const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges, std::size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(0x2000);
  if (nodes) *nodes = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  if (!capturing) return cudaSuccess;
  const std::lock_guard guard(lock);
  if (const auto i = captures.find(stream); i != captures.end()) {
    *status = cudaStreamCaptureStatusActive;
    if (id) *id = i->second;
  }
  return cudaSuccess;
}
EMULATED cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
EMULATED cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard guard(lock);
  captures[stream] = next_capture++;
  ++capturing;
  return cudaSuccess;
}
EMULATED cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard guard(lock);
  capturing -= static_cast<int>(captures.erase(stream));
  return create(graph);
}
EMULATED cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

// PyTorch warns about graphs without nodes, so every graph has one.
EMULATED cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes && count && *count) nodes[0] = reinterpret_cast<cudaGraphNode_t>(0x3000);
  if (count) *count = 1;
  return cudaSuccess;
}
EMULATED cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t, unsigned long long) { return create(e); }
EMULATED cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t, unsigned long long) { return create(e); }

EMULATED cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  call(stream, cudaSuccess, data);
  return cudaSuccess;
}
EMULATED cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t call, void* data) {
  call(data);
  return cudaSuccess;
}
EMULATED cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* h, void*) {
  std::memset(h, 0, sizeof *h);
  return cudaSuccess;
}
EMULATED cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* h, cudaEvent_t) {
  std::memset(h, 0, sizeof *h);
  return cudaSuccess;
}
