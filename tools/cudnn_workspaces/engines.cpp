// Asks the installed cuDNN, without a GPU, which engine its heuristics rank first for a convolution, and what that
// engine wants: the data that rules.py learns from.
//
//   g++ -O2 -std=c++20 -I$CUDNN/include -I$CUDA/include engines.cpp $CUDNN/lib/libcudnn.so.9 -ldl -o engines
//   LD_PRELOAD=libemulated_gpu.so:libnvrtc.so.13:libcublasLt.so.13 EMULATED_GPU=h100 ./engines < QUESTIONS
//
// A question is a line of numbers as cudnn_convolutions.cpp takes them. The answer is a line: bytes (-1: no engine),
// the engine's number, and its knobs as type:value.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "../../emulated_gpu/cudnn_convolutions.cpp"

namespace {

std::int64_t number_of(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  std::int64_t got = 0, value = 0;
  cudnnBackendGetAttribute(d, name, type, 1, &got, &value);
  return got ? value : -1;
}

constexpr std::int64_t most_knobs = CUDNN_KNOB_TYPE_COUNTS;

std::string knobs_of(Pool& pool, Descriptor config) {
  std::int64_t count = 0;
  std::vector<Descriptor> knobs;
  for (std::int64_t i = 0; i < most_knobs; ++i) knobs.push_back(pool.make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
  cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, most_knobs, &count,
                           knobs.data());
  knobs.resize(static_cast<std::size_t>(count));
  std::string out;
  for (Descriptor knob : knobs)
    out += " " +
           std::to_string(static_cast<int>(number_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE))) +
           ":" + std::to_string(number_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  return out;
}

/// "bytes engine knobs…" of the first configuration; empty where `mode` proposes none.
std::string first_choice(Pool& pool, Descriptor graph, cudnnBackendHeurMode_t mode) {
  Descriptor h = pool.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  finalize(h);
  std::int64_t count = 0, got = 0;
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  if (count == 0) return {};
  Descriptor config = pool.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
             engine = pool.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &config);
  const auto bytes = number_of(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &engine);
  return std::to_string(bytes) + " " +
         std::to_string(number_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64)) + knobs_of(pool, config);
}

std::string answer(const Numbers& numbers) try {
  const Question q = question_of(numbers.data(), static_cast<std::int64_t>(numbers.size()));
  Pool pool;
  Descriptor graph = graph_of(pool, q);
  std::string out = first_choice(pool, graph, q.asker.mode);
  if (out.empty()) out = first_choice(pool, graph, CUDNN_HEUR_MODE_FALLBACK);
  return out.empty() ? "-1" : out;
} catch (const std::exception&) {
  return "-1";
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    Numbers numbers;
    for (std::int64_t v; in >> v;) numbers.push_back(v);
    std::puts(answer(numbers).c_str());
  }
}
