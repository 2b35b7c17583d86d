// What is taken for convolutions without asking cuDNN: a line "sm" and the numbers that
// emulated_gpu/cudnn_convolutions.cpp takes is answered with "usual least most" in bytes, and "table" where they come
// from an entry of their own.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "estimators/runtime/torch/aten/cudnn_workspace.h"

using namespace memplan;

namespace {

ConvProblem problem_of(const std::vector<std::int64_t>& n) {
  const int rank = static_cast<int>(n.at(4));
  const std::int64_t* at = &n.at(7);
  const auto part = [&](Dims head) {
    for (int i = 0; i < rank; ++i) head.push_back(*at++);
    return head;
  };
  ConvProblem p;
  p.dtype = n.at(1) == 0 ? DType::float32 : n.at(1) == 2 ? DType::float16 : DType::bfloat16;
  p.channels_last = n.at(2) != 0;
  p.groups = n.back();
  p.input = part({n.at(5), n.at(6)});
  const std::int64_t outputs = *at++;
  p.weight = part({outputs, n.at(6) / p.groups});
  p.padding = part({}), p.stride = part({}), p.dilation = part({});
  p.output = {n.at(5), outputs};
  for (int i = 0; i < rank; ++i)
    p.output.push_back((p.input[i + 2] + 2 * p.padding[i] - p.dilation[i] * (p.weight[i + 2] - 1) - 1) / p.stride[i] +
                       1);
  return p;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    int sm = 0;
    in >> sm;
    std::vector<std::int64_t> numbers;
    for (std::int64_t v; in >> v;) numbers.push_back(v);
    Device device;
    device.sm_major = sm / 10;
    device.sm_minor = sm % 10;
    const ConvProblem p = problem_of(numbers);
    bool table = false;
    for (const WorkspaceReading reading :
         {WorkspaceReading::nearest, WorkspaceReading::least, WorkspaceReading::most}) {
      const ConvWorkspace w = conv_workspace(p, static_cast<ConvPass>(numbers.at(0)), {device, "9.19", reading});
      table = w.evidence == Evidence::recorded;
      std::printf("%lld ", static_cast<long long>(w.bytes.count));
    }
    std::puts(table ? "table" : "");
  }
}
