// What the rules say of convolutions: a line "sm" and the numbers that emulated_gpu/cudnn_convolutions.cpp takes is
// answered with "usual least most" in bytes, or "none" where they say nothing.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "estimators/runtime/torch/aten/cudnn_rules.h"

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
    const auto rule = ruled_workspace(problem_of(numbers), static_cast<ConvPass>(numbers.at(0)), sm);
    if (!rule)
      std::puts("none");
    else
      std::printf("%lld %lld %lld\n", static_cast<long long>(rule->usual.count),
                  static_cast<long long>(rule->least.count), static_cast<long long>(rule->most.count));
  }
}
