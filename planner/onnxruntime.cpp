#include "planner/onnxruntime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/setup/field.h"
#include "estimators/setup/onnxruntime.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

using SessionOption = std::pair<std::string_view, std::string_view>;

constexpr SessionOption same{"arena_extend_strategy", "kSameAsRequested"}, no_pattern{"enable_mem_pattern", "0"},
    shrink{"memory.enable_memory_arena_shrinkage", "gpu:0"}, fallback{"cudnn_conv_algo_search", "DEFAULT"};
constexpr std::array<std::array<SessionOption, 2>, 5> changes{{
    {same, {}},
    {same, no_pattern},
    {same, shrink},
    {no_pattern, {}},
    {fallback, {}},
}};

/// An option that may be turned, and what that costs, by how much it is felt.
struct Turn {
  std::string_view name, value;
  int price;  ///< the sum orders combinations
  const char* cost;
};
constexpr std::array turns{
    Turn{"arena_extend_strategy", "kSameAsRequested", 1, "inputs of many different sizes may fragment the arena"},
    Turn{"enable_mem_pattern", "0", 2, "every run allocates buffer by buffer"},
    Turn{"memory.enable_memory_arena_shrinkage", "gpu:0", 6, "every run asks the driver for memory again"},
    Turn{"cudnn_conv_algo_search", "DEFAULT", 12, "convolutions run in slower kernels"},
};

Candidate candidate_of(const TrainingSetup& setup, const Estimate& e, const Device& device, Bytes margin) {
  const Alternative a = alternative_of({}, e, device, margin);
  Candidate c;
  c.setup = setup;
  c.peak = a.peak;
  c.verdict = a.verdict;
  c.headroom = a.headroom;
  c.samples = setup.batch.value_or(1);
  return c;
}

struct Priced {
  Candidate candidate;
  int price = 0;
};

/// Every combination but the present one that turns something.
std::vector<Priced> combinations(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin,
                                 SearchCount& count) {
  std::vector<Priced> out;
  for (unsigned chosen = 1; chosen < 1u << turns.size(); ++chosen) {
    TrainingSetup other = setup;
    std::string flags;
    std::vector<std::string> costs;
    int price = 0;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const OrtSetup before = other.ort;
      if (!(chosen >> i & 1u)) continue;
      set_ort_option(other.ort, turns[i].name, turns[i].value);
      if (other.ort == before) break;  // the present session has it
      flags += (flags.empty() ? "" : " ") +
               setting(Field::runtime_option, fmt::format("{}={}", turns[i].name, turns[i].value));
      costs.emplace_back(turns[i].cost);
      price += turns[i].price;
    }
    if (costs.size() != static_cast<std::size_t>(__builtin_popcount(chosen))) continue;
    ++count.setups;
    const Result<Estimate> e = estimate_planned(model, other, device);
    if (!e) continue;
    ++count.replayed;
    Priced p{candidate_of(other, *e, device, margin), price};
    p.candidate.flags = flags;
    p.candidate.cautions = std::move(costs);
    p.candidate.changes = static_cast<int>(p.candidate.cautions.size());
    out.push_back(std::move(p));
  }
  std::stable_sort(out.begin(), out.end(), [](const Priced& a, const Priced& b) {
    return std::pair(a.price, a.candidate.peak.count) < std::pair(b.price, b.candidate.peak.count);
  });
  return out;
}

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

Suggestion suggest_session(const Model& model, const TrainingSetup& setup, const Device& device,
                           const MarginOf& margin) {
  const Bytes free = margin(device);
  Suggestion s;
  s.estimate = unwrap(estimate_planned(model, setup, device));
  s.parameters = s.estimate.parameter_count;
  s.present = candidate_of(setup, s.estimate, device, free);
  std::vector<Priced> all = combinations(model, setup, device, free, s.count);
  Bytes least = s.present.peak;
  for (const Priced& p : all) {
    const Candidate& c = p.candidate;
    if (c.verdict != Verdict::fits) {
      s.rejected.push_back(
          {c.flags, c.verdict == Verdict::no_fit ? "needs more than there is" : "may need more", c.peak});
      continue;
    }
    // What costs more and saves nothing is no answer.
    if (s.present.verdict == Verdict::fits && c.peak >= least) continue;
    if (!s.fitting.empty() && c.peak >= least) continue;
    least = c.peak;
    s.fitting.push_back(c);
  }
  if (s.present.verdict != Verdict::fits && !s.fitting.empty()) s.smallest = s.fitting.front();
  if (s.present.verdict == Verdict::fits || !s.fitting.empty() || all.empty()) return s;
  const auto smallest = std::min_element(
      all.begin(), all.end(), [](const Priced& a, const Priced& b) { return a.candidate.peak < b.candidate.peak; });
  TrainingSetup other = smallest->candidate.setup;
  const auto batch = largest_batch(model, other, device, margin, s.estimate);
  if (!batch || batch->batch < 1) return s;
  other.batch = batch->batch;
  const Result<Estimate> e = estimate_planned(model, other, device);
  if (!e) return s;
  Candidate c = candidate_of(other, *e, device, free);
  c.flags = setting(Field::batch, std::to_string(batch->batch)) + " " + smallest->candidate.flags;
  c.cautions = smallest->candidate.cautions;
  c.changes = smallest->candidate.changes + 1;
  s.fitting.push_back(c);
  s.smallest = std::move(c);
  return s;
}

}  // namespace memplan
