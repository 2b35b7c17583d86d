// What cuDNN says of a convolution on the emulated card: the workspace of the engine that its heuristics rank first
// (instant mode, then the fallback list: the order in which PyTorch tries with benchmark=False). memplan asks here for
// what its tables lack (estimators/cudnn), and tools/cudnn_workspaces makes the tables of it.
#include <cudnn.h>

#include <array>
#include <cstdint>
#include <exception>
#include <vector>

#include "emulated.h"

namespace {

using Descriptor = cudnnBackendDescriptor_t;
using Numbers = std::vector<std::int64_t>;

/// What cuDNN or a caller does not take. Exceptions with a text need a newer libstdc++ than the wheel's tag promises.
struct Refused : std::exception {};

/// The descriptors of one question, given back together.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (Descriptor d : all_) cudnnBackendDestroyDescriptor(d);
  }
  Descriptor make(cudnnBackendDescriptorType_t type) {
    Descriptor d = nullptr;
    if (cudnnBackendCreateDescriptor(type, &d) != CUDNN_STATUS_SUCCESS) throw Refused{};
    all_.push_back(d);
    return d;
  }

 private:
  std::vector<Descriptor> all_;
};

void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
         const void* value) {
  if (cudnnBackendSetAttribute(d, name, type, count, value) != CUDNN_STATUS_SUCCESS) throw Refused{};
}
void set(Descriptor d, cudnnBackendAttributeName_t name, const Numbers& values) {
  set(d, name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}
void set(Descriptor d, cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
void finalize(Descriptor d) {
  if (cudnnBackendFinalize(d) != CUDNN_STATUS_SUCCESS) throw Refused{};
}

/// Both runtimes that ask: what they tell of their tensors, and which heuristics they want.
struct Asker {
  std::int64_t alignment;  ///< PyTorch's blocks are aligned to 512; it tells at most 64
  cudnnBackendHeurMode_t mode;
};
constexpr Asker askers[] = {{64, CUDNN_HEUR_MODE_INSTANT}, {16, CUDNN_HEUR_MODE_B}};  // PyTorch, ONNX Runtime

struct Question {
  std::int64_t pass = 0;  ///< 0 forward, 1 data gradient, 2 weight gradient
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  bool channels_last = false;
  Asker asker = askers[0];
  Numbers x, w, y;  ///< sizes: [N, C, …], [K, C / groups, …], [N, K, …]
  Numbers padding, stride, dilation;
};

Question question_of(const std::int64_t* n, std::int64_t count) {
  constexpr std::int64_t head = 7, per_dimension = 5;
  Question q;
  if (count < head) throw Refused{};
  const std::int64_t rank = n[4], channels = n[6];
  if ((rank != 2 && rank != 3) || count != head + 2 + per_dimension * rank) throw Refused{};
  if (n[0] < 0 || n[0] > 2 || n[3] < 0 || n[3] > 1) throw Refused{};
  q.pass = n[0];
  q.dtype = static_cast<cudnnDataType_t>(n[1]);
  q.channels_last = n[2] != 0;
  q.asker = askers[n[3]];
  const std::int64_t* at = n + head;
  const auto take = [&] {
    const Numbers out(at, at + rank);
    at += rank;
    return out;
  };
  const Numbers in = take();
  const std::int64_t outputs = *at++;
  const Numbers kernel = take();
  q.padding = take(), q.stride = take(), q.dilation = take();
  const std::int64_t groups = *at;
  if (groups < 1) throw Refused{};
  q.x = {n[5], channels};
  q.w = {outputs, channels / groups};
  q.y = {n[5], outputs};
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (q.stride[i] < 1) throw Refused{};
    q.x.push_back(in[i]);
    q.w.push_back(kernel[i]);
    q.y.push_back((in[i] + 2 * q.padding[i] - q.dilation[i] * (kernel[i] - 1) - 1) / q.stride[i] + 1);
  }
  return q;
}

/// Of a dense tensor; `channels_last`: the second dimension moves fastest.
Numbers strides_of(const Numbers& sizes, bool channels_last) {
  Numbers out(sizes.size());
  std::int64_t next = 1;
  if (channels_last) out[1] = 1, next = sizes[1];
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (channels_last && d == 1) continue;
    out[d] = next;
    next *= sizes[d];
  }
  return out;
}

Descriptor tensor(Pool& pool, std::int64_t id, const Numbers& sizes, const Question& q) {
  Descriptor d = pool.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &q.dtype);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  set(d, CUDNN_ATTR_TENSOR_STRIDES, strides_of(sizes, q.channels_last));
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, Numbers{id});
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Numbers{q.asker.alignment});
  finalize(d);
  return d;
}

Descriptor convolution(Pool& pool, const Question& q) {
  Descriptor d = pool.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t compute = q.dtype == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Numbers{static_cast<std::int64_t>(q.stride.size())});
  set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, q.padding);
  set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, q.padding);
  set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, q.dilation);
  set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, q.stride);
  finalize(d);
  return d;
}

/// The convolution and its three passes name the same attributes differently.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};
constexpr PassNames passes[3] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

Descriptor graph_of(Pool& pool, const Question& q) {
  const PassNames& names = passes[q.pass];
  // alpha and beta are doubles where the computation is
  const bool wide = q.dtype == CUDNN_DATA_DOUBLE;
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const auto type = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  Descriptor operation = pool.make(names.operation);
  set(operation, names.alpha, type, 1, wide ? static_cast<const void*>(&wide_one) : &one);
  set(operation, names.beta, type, 1, wide ? static_cast<const void*>(&wide_zero) : &zero);
  set(operation, names.convolution, convolution(pool, q));
  set(operation, names.x, tensor(pool, 'x', q.x, q));
  set(operation, names.w, tensor(pool, 'w', q.w, q));
  set(operation, names.y, tensor(pool, 'y', q.y, q));
  finalize(operation);
  Descriptor graph = pool.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  finalize(graph);
  return graph;
}

/// Workspace of the first configuration that `mode` proposes; -1 where it proposes none.
std::int64_t first_workspace(Pool& pool, Descriptor graph, cudnnBackendHeurMode_t mode) {
  Descriptor h = pool.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  finalize(h);  // cudnn_graph.cpp describes the card to it
  std::int64_t count = 0, got = 0, workspace = -1;
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  if (count == 0) return -1;
  Descriptor config = pool.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &config);
  cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &workspace);
  return workspace;
}

}  // namespace

/// `numbers`: pass (0 forward, 1 data gradient, 2 weight gradient), cudnnDataType_t (0 float, 1 double, 2 half,
/// 9 bfloat16), channels last or not, who asks (0 PyTorch, 1 ONNX Runtime), spatial dimensions (2 or 3), N, C, the
/// input's size, K, the kernel's size, padding, stride, dilation, groups. Bytes; -1: cuDNN has no engine for it, or
/// the numbers are none. A libcudnn.so.9 has to be loaded.
EMULATED std::int64_t emulated_gpu_convolution_workspace(const std::int64_t* numbers, std::int64_t count) try {
  const Question q = question_of(numbers, count);
  Pool pool;
  Descriptor graph = graph_of(pool, q);
  const std::int64_t first = first_workspace(pool, graph, q.asker.mode);
  return first >= 0 ? first : first_workspace(pool, graph, CUDNN_HEUR_MODE_FALLBACK);
} catch (const std::exception&) {
  return -1;
}
