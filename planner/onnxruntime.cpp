#include "planner/onnxruntime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "estimators/pipeline.h"
#include "estimators/setup/field.h"
#include "estimators/setup/onnxruntime.h"

namespace memplan {

namespace {

using Option = std::pair<std::string_view, std::string_view>;

constexpr Option same{"arena_extend_strategy", "kSameAsRequested"}, no_pattern{"enable_mem_pattern", "0"},
    shrink{"memory.enable_memory_arena_shrinkage", "gpu:0"}, fallback{"cudnn_conv_algo_search", "DEFAULT"};
constexpr std::array<std::array<Option, 2>, 5> changes{{
    {same, {}},
    {same, no_pattern},
    {same, shrink},
    {no_pattern, {}},
    {fallback, {}},
}};

}  // namespace

std::vector<Alternative> smaller_sessions(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                          Bytes margin, const Estimate& known) {
  std::vector<Alternative> out;
  for (const auto& change : changes) {
    TrainingSetup other = setup;
    std::string flags;
    for (const auto& [name, value] : change) {
      if (name.empty()) continue;
      set_ort_option(other.ort, name, value);
      flags += (flags.empty() ? "" : " ") + setting(Field::runtime_option, fmt::format("{}={}", name, value));
    }
    if (other.ort == setup.ort) continue;
    const Result<Estimate> e = estimate_tape(tape, other, device);
    if (e && e->peak.process < known.peak.process) out.push_back(alternative_of(flags, *e, device, margin));
  }
  std::stable_sort(out.begin(), out.end(), [](const Alternative& a, const Alternative& b) { return a.peak < b.peak; });
  return out;
}

}  // namespace memplan
