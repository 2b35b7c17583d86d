// Asks the installed cuDNN, without a GPU or a driver, how much workspace the convolution engine wants that it ranks
// first (instant mode, then the fallback list: the order in which PyTorch tries with benchmark=False).
//
//   g++ -O2 -std=c++20 -I$CUDNN/include query.cpp $CUDNN/lib/libcudnn.so.9 -Wl,-rpath,$CUDNN/lib -o query
//   query points < LINES        one answer a line: "pass sm dtype nhwc N C H W K R S ph pw sh sw dh dw groups"
//   query curves < LINES        LINES without the first five: workspaces over the batch size, as runs of a + b * N
//   query samples < LINES       the same at a few batch sizes only, a tenth of the time: for tables of differences
//   query onnxruntime < LINES   the same for the forward pass in float32 and float16 and NCHW, as ONNX Runtime asks
//   (cuDNN's frontend:
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
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Problem {
  int pass = 0, dtype = 0, nhwc = 0;
  bool onnxruntime = false;  ///< who asks
  std::int64_t n = 1;
  std::array<std::int64_t, 13> shape{};  ///< C H W K R S ph pw sh sw dh dw groups
};

using Workspace = std::int64_t(const std::int64_t*, std::int64_t);

/// The emulated GPU's question to cuDNN (emulated_gpu/cudnn_convolutions.cpp).
Workspace* emulated_workspace() {
  static auto* const found = reinterpret_cast<Workspace*>(dlsym(RTLD_DEFAULT, "emulated_gpu_convolution_workspace"));
  if (!found) throw std::runtime_error("run this with LD_PRELOAD=libemulated_gpu.so");
  return found;
}

std::int64_t workspace_of(const Problem& p) {
  constexpr std::int64_t dimensions = 2;
  std::vector<std::int64_t> numbers{p.pass, p.dtype, p.nhwc, p.onnxruntime, dimensions, p.n};
  numbers.insert(numbers.end(), p.shape.begin(), p.shape.end());
  return emulated_workspace()(numbers.data(), static_cast<std::int64_t>(numbers.size()));
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
      int described = 0;  // the emulated GPU says which card it is
      in >> p.pass >> described >> p.dtype >> p.nhwc >> p.n;
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
            if (onnxruntime && (dtype == 9 || nhwc || pass)) continue;
            p.onnxruntime = onnxruntime;
            p.dtype = dtype, p.nhwc = nhwc, p.pass = pass;
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
