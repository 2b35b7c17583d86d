// Asks the installed cuDNN, without a GPU or a driver, how much workspace the convolution engine wants that it ranks
// first (instant mode, then the fallback list: the order in which PyTorch tries with benchmark=False).
//
//   g++ -O2 -std=c++20 -I$CUDNN/include query.cpp $CUDNN/lib/libcudnn.so.9 -Wl,-rpath,$CUDNN/lib -o query
//   query points < LINES        one answer a line: "pass sm dtype nhwc N C H W K R S ph pw sh sw dh dw groups"
//   query curves < LINES        LINES without the first five: workspaces over the batch size, as runs of a + b * N
//   query samples < LINES       the same at a few batch sizes only, a tenth of the time: for tables of differences
//   query onnxruntime < LINES   the same for the forward pass in float32 and NCHW, as ONNX Runtime asks (cuDNN's
//   frontend:
//                               heuristic mode B, alignment 16)
//   query version
//
// Run it under the emulated GPU (emulated_gpu), one architecture at a time: without any driver cuDNN leaves out the
// engines that it compiles at run time, and that one describes its card to cuDNN whatever `sm` says here:
//
//   LD_PRELOAD=libemulated_gpu.so EMULATED_GPU=h100 ./query curves 90 < problems.txt > 90.txt
//   LD_PRELOAD=libemulated_gpu.so EMULATED_GPU=a100 ./query curves 80 < problems.txt > 80.txt
//   python pack.py 9.19.0 ../../data/cudnn/workspaces.txt 90.txt 80.txt
//   python pack.py 9.26.0 ../../data/cudnn/differences-9.26.txt --samples ../../data/cudnn/workspaces.txt 90.txt 80.txt
//
// Preload libnvrtc.so.13 and libcublasLt.so.13 as well: cuDNN otherwise opens and closes them for every answer, which
// takes 30 times as long. The problems of the present table are its own lines (grep ^90 data/cudnn/workspaces.txt |
// sed 's/^90 //; s/|.*//'); problems.py lists those of models, which `pack.py … --add` puts to the table.
//
// pass: 0 forward, 1 data gradient, 2 weight gradient. dtype: 0 float, 2 half, 9 bfloat16 (cudnnDataType_t).
// Since cuDNN 9.8 a device property descriptor filled from JSON takes the place of the handle.
#include <cudnn.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Descriptor = cudnnBackendDescriptor_t;

/// The descriptors of one query, given back together.
class Pool {
 public:
  ~Pool() {
    for (Descriptor d : all_) cudnnBackendDestroyDescriptor(d);
  }
  Descriptor make(cudnnBackendDescriptorType_t type) {
    Descriptor d = nullptr;
    if (cudnnBackendCreateDescriptor(type, &d) != CUDNN_STATUS_SUCCESS) throw std::runtime_error("create");
    all_.push_back(d);
    return d;
  }

 private:
  std::vector<Descriptor> all_;
};

void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
         const void* value) {
  if (cudnnBackendSetAttribute(d, name, type, count, value) != CUDNN_STATUS_SUCCESS) throw std::runtime_error("set");
}
void finalize(Descriptor d) {
  if (cudnnBackendFinalize(d) != CUDNN_STATUS_SUCCESS) throw std::runtime_error("finalize");
}

struct Spec {
  int sm, multiprocessors, threads, blocks;
  long shared_memory;
  int l2;
  unsigned long long total;
  const char* name;
};

// What the cards report (cudaGetDeviceProperties). The heuristics look at multiprocessors, shared memory and cache.
constexpr Spec specs[] = {
    {90, 132, 2048, 32, 232448, 52428800, 85017755648ull, "NVIDIA H100 80GB HBM3"},
    {80, 108, 2048, 32, 166912, 41943040, 85174583296ull, "NVIDIA A100-SXM4-80GB"},
    {89, 58, 1536, 24, 101376, 50331648, 23678025728ull, "NVIDIA L4"},
    {86, 82, 1536, 16, 101376, 6291456, 25425608704ull, "NVIDIA GeForce RTX 3090"},
    {75, 40, 1024, 16, 65536, 4194304, 15828320256ull, "Tesla T4"},
};

Descriptor device(int sm) {
  static std::map<int, Descriptor> known;
  if (const auto it = known.find(sm); it != known.end()) return it->second;
  for (const Spec& s : specs) {
    if (s.sm != sm) continue;
    char json[2048];
    const int length = std::snprintf(
        json, sizeof json,
        "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"deviceVer\":%d,\"cudaDeviceId\":0,"
        "\"driverVer\":13000,\"totalGlobalMem\":%llu,\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%ld,\"reservedSharedMemoryPerBlock\":1024,"
        "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,"
        "\"pciDeviceId\":0,"
        "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
        "\"l2CacheSize\":%d,"
        "\"deviceName\":\"%s\"}",
        sm * 10, s.total, s.multiprocessors, s.shared_memory, s.blocks, s.threads, s.l2, s.name);
    Descriptor d = nullptr;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d) != CUDNN_STATUS_SUCCESS)
      throw std::runtime_error("device");
    set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length, json);
    finalize(d);
    return known[sm] = d;
  }
  throw std::runtime_error("no such device");
}

struct Problem {
  int pass = 0, sm = 90, dtype = 0, nhwc = 0;
  bool onnxruntime = false;  ///< who asks
  std::int64_t n = 1;
  std::array<std::int64_t, 13> shape{};  ///< C H W K R S ph pw sh sw dh dw groups
};

Descriptor tensor(Pool& pool, std::int64_t uid, const std::array<std::int64_t, 4>& dims, int dtype, bool nhwc,
                  std::int64_t alignment) {
  Descriptor d = pool.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto type = static_cast<cudnnDataType_t>(dtype);
  std::array<std::int64_t, 4> strides{};
  if (nhwc)
    strides = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
  else
    strides = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
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

/// Workspace of the first configuration that `mode` proposes; -1 where it proposes none.
std::int64_t first_workspace(Pool& pool, Descriptor graph, Descriptor dev, cudnnBackendHeurMode_t mode) {
  Descriptor h = pool.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dev);
  finalize(h);
  std::int64_t count = 0, got = 0, workspace = -1;
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  if (count == 0) return -1;
  Descriptor config = pool.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &config);
  cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &workspace);
  return workspace;
}

std::int64_t workspace_of(const Problem& p) try {
  const auto& [C, H, W, K, R, S, ph, pw, sh, sw, dh, dw, groups] = p.shape;
  const std::int64_t P = (H + 2 * ph - dh * (R - 1) - 1) / sh + 1, Q = (W + 2 * pw - dw * (S - 1) - 1) / sw + 1;
  const std::int64_t alignment = p.onnxruntime ? 16 : 64;  // PyTorch's blocks are aligned to 512; it tells at most 64
  Pool pool;
  Descriptor dev = device(p.sm);
  Descriptor x = tensor(pool, 'x', {p.n, C, H, W}, p.dtype, p.nhwc, alignment),
             y = tensor(pool, 'y', {p.n, K, P, Q}, p.dtype, p.nhwc, alignment),
             w = tensor(pool, 'w', {K, C / groups, R, S}, p.dtype, p.nhwc, alignment);
  Descriptor conv = pool.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::int64_t two = 2, padding[2] = {ph, pw}, stride[2] = {sh, sw}, dilation[2] = {dh, dw};
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
  set(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
  set(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
  set(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
  set(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
  finalize(conv);
  const PassNames& names = passes[p.pass];
  const float one = 1, zero = 0;
  Descriptor operation = pool.make(names.operation);
  set(operation, names.alpha, CUDNN_TYPE_FLOAT, 1, &one);
  set(operation, names.beta, CUDNN_TYPE_FLOAT, 1, &zero);
  set(operation, names.convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv);
  set(operation, names.x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
  set(operation, names.w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
  set(operation, names.y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
  finalize(operation);
  Descriptor graph = pool.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation);
  finalize(graph);
  const std::int64_t instant =
      first_workspace(pool, graph, dev, p.onnxruntime ? CUDNN_HEUR_MODE_B : CUDNN_HEUR_MODE_INSTANT);
  return instant >= 0 ? instant : first_workspace(pool, graph, dev, CUDNN_HEUR_MODE_FALLBACK);
} catch (const std::runtime_error&) {
  return -1;
}

/// Batch sizes asked for, denser where they are used most. Between two of them the line of the lower one is taken.
std::vector<std::int64_t> batches() {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 1; n <= 1024; n += n < 64 ? 1 : n < 128 ? 2 : n < 256 ? 8 : 32) out.push_back(n);
  return out;
}

/// What another version of cuDNN is asked for (pack.py --samples and aten/cudnn_workspace.cpp have the same list).
const std::vector<std::int64_t> sampled{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};

/// Runs "n:a:b": from batch n on the workspace is a + b * N, until the next run.
void print_curve(const std::vector<std::int64_t>& n, const std::vector<std::int64_t>& ws) {
  std::size_t i = 0;
  while (i < n.size()) {
    std::int64_t a = ws[i], b = 0;
    std::size_t j = i + 1;
    if (j < n.size() && (ws[j] - ws[i]) % (n[j] - n[i]) == 0) {
      b = (ws[j] - ws[i]) / (n[j] - n[i]);
      a = ws[i] - b * n[i];
      while (j < n.size() && ws[j] == a + b * n[j]) ++j;
      // Two points make a line of any pair: only three tell a run from a jump.
      if (b != 0 && j == i + 2 && j < n.size()) {
        a = ws[i];
        b = 0;
        j = i + 1;
      }
    }
    std::printf(" %ld:%ld:%ld", static_cast<long>(n[i]), static_cast<long>(a), static_cast<long>(b));
    i = j;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "version") {
    std::printf("%zu\n", cudnnGetVersion());
    return 0;
  }
  const bool onnxruntime = mode == "onnxruntime";
  if (mode != "points" && mode != "curves" && mode != "samples" && !onnxruntime) {
    std::fprintf(stderr, "usage: query points|curves|samples|onnxruntime|version [sm...] < lines\n");
    return 2;
  }
  std::vector<int> sms;
  for (int i = 2; i < argc; ++i) sms.push_back(std::stoi(argv[i]));
  if (sms.empty()) sms = {90, 80};
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    Problem p;
    if (mode == "points") {
      in >> p.pass >> p.sm >> p.dtype >> p.nhwc >> p.n;
      for (auto& v : p.shape) in >> v;
      if (!in) throw std::runtime_error("bad line: " + line);
      std::printf("%s | %ld\n", line.c_str(), static_cast<long>(workspace_of(p)));
      continue;
    }
    for (auto& v : p.shape) in >> v;
    if (!in) throw std::runtime_error("bad line: " + line);
    for (const int sm : sms)
      for (const int dtype : {0, 2, 9})
        for (const int nhwc : {0, 1})
          for (const int pass : {0, 1, 2}) {
            if (onnxruntime && (dtype || nhwc || pass)) continue;
            p.onnxruntime = onnxruntime;
            p.sm = sm, p.dtype = dtype, p.nhwc = nhwc, p.pass = pass;
            const auto ns = mode == "samples" ? sampled : batches();
            std::vector<std::int64_t> ws;
            for (p.n = 1; const std::int64_t n : ns) p.n = n, ws.push_back(workspace_of(p));
            std::printf("%d %d %d %d", sm, dtype, nhwc, pass);
            for (const auto v : p.shape) std::printf(" %ld", static_cast<long>(v));
            std::printf(" |");
            if (mode == "samples")
              for (const auto v : ws) std::printf(" %ld", static_cast<long>(v));
            else
              print_curve(ns, ws);
            std::printf("\n");
          }
    std::fflush(stdout);
  }
}
