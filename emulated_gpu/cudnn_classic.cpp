// cuDNN's older API, which needs a handle and therefore cannot be asked for real: versions, descriptors that PyTorch
// reads back, batch norm, dropout, and the layout of recurrent weights (PyTorch checks that the gates follow each
// other).
#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "emulated.h"

using namespace emulated;

namespace {

constexpr cudnnStatus_t done = CUDNN_STATUS_SUCCESS;
constexpr int most_dims = 8;

thread_local cudaStream_t stream_of_thread = nullptr;

std::size_t bytes_of(cudnnDataType_t t) {
  switch (t) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

/// A tensor or a filter.
struct Shape {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> sizes, strides;
};

template <class D>
Shape& shape(D d) {
  return *reinterpret_cast<Shape*>(d);
}

void assign(Shape* s, cudnnDataType_t type, std::vector<int> sizes, std::vector<int> strides) {
  if (s) *s = {type, std::move(sizes), std::move(strides)};
}

void read(const Shape& s, int room, cudnnDataType_t* type, int* count, int* sizes, int* strides) {
  *type = s.type;
  *count = static_cast<int>(s.sizes.size());
  for (int i = 0; i < std::min(room, most_dims); ++i) {
    const auto at = static_cast<std::size_t>(i);
    sizes[i] = at < s.sizes.size() ? s.sizes[at] : 1;
    if (strides) strides[i] = at < s.strides.size() ? s.strides[at] : 1;
  }
}

}  // namespace

EMULATED const char* cudnnGetErrorString(cudnnStatus_t) { return "error of the emulated GPU"; }
EMULATED void cudnnGetLastErrorString(char* out, std::size_t room) {
  if (room) *out = 0;
}
EMULATED cudnnStatus_t cudnnCreate(cudnnHandle_t* h) {
  *h = handle<cudnnHandle_t>();
  return done;
}
EMULATED cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t s) {
  stream_of_thread = s;
  return done;
}
EMULATED cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* s) {
  *s = stream_of_thread;
  return done;
}

EMULATED cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) {
  *d = reinterpret_cast<cudnnTensorDescriptor_t>(new Shape);
  return done;
}
EMULATED cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) {
  delete &shape(d);
  return done;
}
EMULATED cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n,
                                                  const int* sizes, const int* strides) {
  assign(&shape(d), type, {sizes, sizes + n}, {strides, strides + n});
  return done;
}
EMULATED cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t d, int room, cudnnDataType_t* type,
                                                  int* n, int* sizes, int* strides) {
  read(shape(d), room, type, n, sizes, strides);
  return done;
}
EMULATED cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) {
  *d = reinterpret_cast<cudnnFilterDescriptor_t>(new Shape);
  return done;
}
EMULATED cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) {
  delete &shape(d);
  return done;
}
EMULATED cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t,
                                                  int n, const int* sizes) {
  assign(&shape(d), type, {sizes, sizes + n}, {});
  return done;
}
EMULATED cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t d, int room, cudnnDataType_t* type,
                                                  cudnnTensorFormat_t* format, int* n, int* sizes) {
  if (format) *format = CUDNN_TENSOR_NCHW;
  read(shape(d), room, type, n, sizes, nullptr);
  return done;
}

// Batch norm: the true sizes need a handle. Contiguous input takes the spatial mode, which needs next to nothing; the
// persistent mode, of input in channels-last, may keep a reserve per layer.
namespace {

cudnnStatus_t batch_norm_bytes(cudnnBatchNormMode_t mode, std::size_t* bytes) {
  if (mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT)
    emulated_gpu_unknown("cuDNN batch norm in channels-last: workspace and reserve");
  *bytes = 0;
  return done;
}

}  // namespace

EMULATED cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnActivationDescriptor_t, std::size_t* bytes) {
  return batch_norm_bytes(mode, bytes);
}
EMULATED cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnActivationDescriptor_t,
    std::size_t* bytes) {
  return batch_norm_bytes(mode, bytes);
}
EMULATED cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t, cudnnBatchNormMode_t mode,
                                                                            cudnnBatchNormOps_t,
                                                                            const cudnnActivationDescriptor_t,
                                                                            const cudnnTensorDescriptor_t,
                                                                            std::size_t* bytes) {
  return batch_norm_bytes(mode, bytes);
}
/// One 16-byte generator state per resident thread.
EMULATED cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t, std::size_t* bytes) {
  *bytes = static_cast<std::size_t>(card().multiprocessors) *
           static_cast<std::size_t>(card().threads_per_multiprocessor) * 16;
  return done;
}

namespace {

struct Recurrent {
  cudnnRNNMode_t mode;
  cudnnRNNBiasMode_t bias;
  cudnnDirectionMode_t direction;
  cudnnDataType_t type;
  std::uint64_t input, hidden, projection;
  int layers;

  int directions() const { return direction == CUDNN_BIDIRECTIONAL ? 2 : 1; }
  int pseudo_layers() const { return layers * directions(); }
  int gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  std::uint64_t output() const { return projection ? projection : hidden; }
  bool projects() const { return mode == CUDNN_LSTM && projection && projection != hidden; }
  std::uint64_t layer_input(int pseudo_layer) const {
    return pseudo_layer < directions() ? input : output() * static_cast<std::uint64_t>(directions());
  }
  /// Elements of the gate matrices that take the layer's input, and of all matrices.
  std::uint64_t input_matrices(int pseudo_layer) const {
    return static_cast<std::uint64_t>(gates()) * hidden * layer_input(pseudo_layer);
  }
  std::uint64_t gate_matrices(int pseudo_layer) const {
    return input_matrices(pseudo_layer) + static_cast<std::uint64_t>(gates()) * hidden * output();
  }
  std::uint64_t matrices(int pseudo_layer) const {
    return gate_matrices(pseudo_layer) + (projects() ? projection * hidden : 0);
  }
  std::uint64_t biases() const {
    const std::uint64_t vectors = bias == CUDNN_RNN_NO_BIAS ? 0 : bias == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
    return vectors * static_cast<std::uint64_t>(gates()) * hidden;
  }
};

struct Sequence {
  int length, batch;
};

const Recurrent& recurrent(cudnnRNNDescriptor_t d) { return *reinterpret_cast<const Recurrent*>(d); }

}  // namespace

EMULATED cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* d) {
  *d = reinterpret_cast<cudnnRNNDescriptor_t>(new Recurrent{});
  return done;
}
EMULATED cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t d) {
  delete reinterpret_cast<Recurrent*>(d);
  return done;
}
EMULATED cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t, cudnnRNNMode_t mode,
                                                cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
                                                cudnnRNNInputMode_t, cudnnDataType_t type, cudnnDataType_t,
                                                cudnnMathType_t, int32_t input, int32_t hidden, int32_t projection,
                                                int32_t layers, cudnnDropoutDescriptor_t, uint32_t) {
  *reinterpret_cast<Recurrent*>(d) = {mode,
                                      bias,
                                      direction,
                                      type,
                                      static_cast<std::uint64_t>(input),
                                      static_cast<std::uint64_t>(hidden),
                                      static_cast<std::uint64_t>(projection),
                                      layers};
  return done;
}
EMULATED cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* d) {
  *d = reinterpret_cast<cudnnRNNDataDescriptor_t>(new Sequence{});
  return done;
}
EMULATED cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d) {
  delete reinterpret_cast<Sequence*>(d);
  return done;
}
EMULATED cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t, cudnnRNNDataLayout_t,
                                                 int length, int batch, int, const int*, void*) {
  *reinterpret_cast<Sequence*>(d) = {length, batch};
  return done;
}

EMULATED cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t d, std::size_t* bytes) {
  const Recurrent& r = recurrent(d);
  std::uint64_t elements = 0;
  for (int p = 0; p < r.pseudo_layers(); ++p) elements += r.matrices(p) + r.biases();
  *bytes = elements * bytes_of(r.type);
  return done;
}

/// Order in the weight space: all matrices layer by layer (input gates, recurrent gates, projection), then all biases.
EMULATED cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t d, int32_t pseudo_layer, std::size_t,
                                               const void* space, int32_t id, cudnnTensorDescriptor_t matrix,
                                               void** matrix_at, cudnnTensorDescriptor_t bias, void** bias_at) {
  const Recurrent& r = recurrent(d);
  const int gates = r.gates(), hidden = static_cast<int>(r.hidden);
  const auto at = [&](std::uint64_t element) {
    return const_cast<char*>(static_cast<const char*>(space)) + element * bytes_of(r.type);
  };
  std::uint64_t before = 0, all_matrices = 0;
  for (int p = 0; p < r.pseudo_layers(); ++p) {
    if (p < pseudo_layer) before += r.matrices(p);
    all_matrices += r.matrices(p);
  }
  Shape *m = matrix ? &shape(matrix) : nullptr, *b = bias ? &shape(bias) : nullptr;
  void *matrix_found = nullptr, *bias_found = nullptr;
  assign(m, r.type, {}, {});
  assign(b, r.type, {}, {});
  if (id == 2 * gates) {
    if (r.projects()) {
      assign(m, r.type, {1, static_cast<int>(r.projection), hidden},
             {static_cast<int>(r.projection) * hidden, hidden, 1});
      matrix_found = at(before + r.gate_matrices(pseudo_layer));
    }
  } else {
    const std::uint64_t gate = static_cast<std::uint64_t>(id % gates);
    const std::uint64_t columns = id < gates ? r.layer_input(pseudo_layer) : r.output();
    assign(m, r.type, {1, hidden, static_cast<int>(columns)},
           {hidden * static_cast<int>(columns), static_cast<int>(columns), 1});
    matrix_found = at(before + (id < gates ? 0 : r.input_matrices(pseudo_layer)) + gate * r.hidden * columns);
    if (r.bias != CUDNN_RNN_NO_BIAS) {
      assign(b, r.type, {1, hidden, 1}, {hidden, 1, 1});
      bias_found = at(all_matrices + static_cast<std::uint64_t>(pseudo_layer) * r.biases() +
                      static_cast<std::uint64_t>(id) * r.hidden);
    }
  }
  if (matrix_at) *matrix_at = matrix_found;
  if (bias_at) *bias_at = bias_found;
  return done;
}

/// The true sizes are internal to cuDNN. What the data needs at least: for the workspace the gates of one layer,
/// forward and recomputed; for the reserve every layer's gates, its output and, of an LSTM, its cell.
EMULATED cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode,
                                                 cudnnRNNDataDescriptor_t x, std::size_t* workspace,
                                                 std::size_t* reserve) {
  emulated_gpu_unknown("cuDNN recurrent layers: workspace and reserve (counted by the data, a lower bound)");
  const Recurrent& r = recurrent(d);
  const auto& s = *reinterpret_cast<const Sequence*>(x);
  const std::uint64_t state = static_cast<std::uint64_t>(s.length) * static_cast<std::uint64_t>(s.batch) * r.hidden *
                              static_cast<std::uint64_t>(r.directions()) * bytes_of(r.type);
  const auto gates = static_cast<std::uint64_t>(r.gates());
  if (workspace) *workspace = state * gates * 2;
  if (reserve)
    *reserve = mode == CUDNN_FWD_MODE_TRAINING
                   ? state * static_cast<std::uint64_t>(r.layers) * (gates + (r.mode == CUDNN_LSTM ? 2 : 1))
                   : 0;
  return done;
}
