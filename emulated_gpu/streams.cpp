// Streams, events and graphs. Everything is finished at once, unless EMULATED_GPU_EVENTS=late asks for the other
// extreme: a device so slow that nothing is finished before somebody waits for it. What a real device does lies between
// the two; memory that is used on another stream (record_stream) is free at once in the first case and only after a
// wait in the second. Captures are tracked, because PyTorch's allocator behaves differently inside of one.
#include <algorithm>
#include <cstdlib>
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

bool late() {
  static const bool wanted = [] {
    const char* how = std::getenv("EMULATED_GPU_EVENTS");
    return how && !std::strcmp(how, "late");
  }();
  return wanted;
}

/// Work is numbered as it is recorded; a stream has finished everything up to a number.
struct Recorded {
  cudaStream_t stream = nullptr;
  std::uint64_t number = 0;
};
std::mutex order_lock;
std::uint64_t last_number = 0;
std::map<cudaEvent_t, Recorded> events;
std::map<cudaStream_t, std::uint64_t> finished;
std::map<cudaStream_t, std::map<cudaStream_t, std::uint64_t>> waited_for;  // stream -> what it waits for on others

/// With the lock held: the stream has done its work up to `number`, so what it had waited for is done, too.
void finish(cudaStream_t stream, std::uint64_t number) {
  std::uint64_t& done = finished[stream];
  if (done >= number) return;
  done = number;
  const auto others = waited_for[stream];
  for (const auto& [other, until] : others) finish(other, std::min(until, number));
}

void finish_all() {
  for (auto& [stream, done] : finished) done = last_number;
  for (auto& [event, r] : events) finished[r.stream] = last_number;
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
EMULATED cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  if (!late()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  events[event] = {stream, ++last_number};
  return cudaSuccess;
}
EMULATED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
EMULATED cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!late()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  events.erase(event);
  return cudaSuccess;
}
EMULATED cudaError_t cudaEventQuery(cudaEvent_t event) {
  // A thread that launches nothing only watches: NCCL's watchdog would wait for ever.
  if (!late() || !*last_kernel_name()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  const auto i = events.find(event);
  if (i == events.end() || finished[i->second.stream] >= i->second.number) return cudaSuccess;
  return failed(cudaErrorNotReady);
}
EMULATED cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!late()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  if (const auto i = events.find(event); i != events.end()) finish(i->second.stream, i->second.number);
  return cudaSuccess;
}
EMULATED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!late()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  if (const auto i = events.find(event); i != events.end() && i->second.stream != stream) {
    std::uint64_t& until = waited_for[stream][i->second.stream];
    until = std::max(until, i->second.number);
  }
  return cudaSuccess;
}
EMULATED cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!late()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  finish(stream, last_number);
  return cudaSuccess;
}
EMULATED cudaError_t cudaDeviceSynchronize() {
  if (!late()) return cudaSuccess;
  const std::lock_guard guard(order_lock);
  finish_all();
  return cudaSuccess;
}
EMULATED cudaError_t cudaStreamCreate(cudaStream_t* s) { return create(s); }
EMULATED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return create(s); }
EMULATED cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return create(s); }
EMULATED cudaError_t cudaStreamGetPriority(cudaStream_t, int* p) {
  *p = 0;
  return cudaSuccess;
}

namespace {

cudaError_t capture_of(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                       const cudaGraphNode_t** nodes, std::size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(0x2000);
  if (nodes) *nodes = nullptr;
  if (count) *count = 0;
  if (!capturing) return cudaSuccess;
  const std::lock_guard guard(lock);
  if (const auto i = captures.find(stream); i != captures.end()) {
    *status = cudaStreamCaptureStatusActive;
    if (id) *id = i->second;
  }
  return cudaSuccess;
}

}  // namespace

EMULATED cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                              unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t** nodes,
                                              const cudaGraphEdgeData** edges, std::size_t* count) {
  if (edges) *edges = nullptr;
  return capture_of(stream, status, id, graph, nodes, count);
}
// CUDA 12 has these two for it.
EMULATED cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** nodes, std::size_t* count) {
  return capture_of(stream, status, id, graph, nodes, count);
}
EMULATED cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                                 std::size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, edges, count);
}
EMULATED cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return capture_of(stream, status, nullptr, nullptr, nullptr, nullptr);
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
EMULATED cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t, unsigned long long) {
  return create(e);
}

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
