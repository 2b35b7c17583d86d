// Small changes to a setup that does not fit.
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "estimators/estimate/range.h"
#include "estimators/setup/field.h"
#include "planner/checkpointing/plan.h"
#include "planner/search.h"

namespace memplan {

Alternative alternative_of(std::string flags, const Estimate& e, const Device& device, Bytes margin) {
  const Judgement j = judge(e, device, margin);
  return {std::move(flags), e.peak.process, j.verdict, j.headroom};
}

namespace {

/// A compiled module, and of one that is compiled the largest budget that is enough, or the least. A recording has what
/// it ran.
void try_compiling(const Model& model, const TrainingSetup& setup,
                   const std::function<bool(std::string flags, const TrainingSetup&)>& fits) {
  if (setup.mode != Mode::training || model.recorded) return;
  TrainingSetup compiled = setup;
  compiled.compile = true;
  if (!setup.compile) {
    fits(setting(Field::compile), compiled);
    return;
  }
  for (const char* budget : {"0.7", "0.5", "0.3", "0.1", "0"}) {
    compiled.activation_memory_budget = std::strtod(budget, nullptr);
    if (compiled.activation_memory_budget >= setup.activation_memory_budget) continue;
    if (fits(setting(Field::activation_memory_budget, budget), compiled)) return;
  }
}

}  // namespace

std::vector<Alternative> smaller_changes(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                         const Device& device, Bytes margin, const Estimate& known,
                                         std::optional<Bytes> limit) {
  std::vector<Alternative> changes;
  const auto attempt = [&](std::string flags, const TrainingSetup& changed, bool lower_again) {
    Result<Estimate> e =
        lower_again ? estimate_to_judge(model, changed, device, margin) : estimate_planned_tape(tape, changed, device);
    if (e && !lower_again) conclude_range(*e, known.sources);
    if (e && e->peak.process < known.peak.process)
      changes.push_back(alternative_of(std::move(flags), *e, device, margin));
  };
  const bool training = setup.mode == Mode::training;
  // Cards before compute capability 8.0 have no bfloat16 units.
  const bool bf16 = device.sm_major >= 8, to_amp = setup.precision == Precision::fp32;
  const std::string amp_flags = setting(Field::autocast, bf16 ? "bf16" : "fp16"),
                    blocks_flags = setting(Field::checkpoint, "blocks");
  TrainingSetup amp = setup;
  amp.precision = bf16 ? Precision::amp_bf16 : Precision::amp_fp16;
  if (to_amp) attempt(amp_flags, amp, true);
  if (training && setup.checkpoint.empty()) {
    TrainingSetup blocks = setup;
    blocks.checkpoint = {"blocks"};
    attempt(blocks_flags, blocks, true);
    if (to_amp) {
      amp.checkpoint = {"blocks"};
      attempt(amp_flags + " " + blocks_flags, amp, true);
    }
  }
  const std::size_t before = changes.size();
  try_compiling(model, setup, [&](std::string flags, const TrainingSetup& changed) {
    changes.erase(changes.begin() + static_cast<std::ptrdiff_t>(before), changes.end());
    attempt(std::move(flags), changed, true);
    return changes.size() > before && changes.back().verdict == Verdict::fits;
  });
  // The same samples per optimizer step, in smaller portions.
  if (training && setup.batch)
    for (std::int64_t parts = 2; parts <= 16 && *setup.batch % parts == 0; parts *= 2) {
      TrainingSetup smaller = setup;
      smaller.batch = *setup.batch / parts;
      smaller.accumulate = setup.accumulate * parts;
      attempt(setting(Field::batch, *smaller.batch) + " " + setting(Field::accumulate, smaller.accumulate), smaller,
              true);
      if (!changes.empty() && changes.back().verdict == Verdict::fits && (!limit || changes.back().peak <= *limit))
        break;
    }
  if (!setup.allocator.expandable_segments) {
    TrainingSetup expandable = setup;
    expandable.allocator.expandable_segments = true;
    attempt(setting(Field::allocator, "expandable_segments:True"), expandable, false);
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Alternative& x, const Alternative& y) { return x.peak < y.peak; });
  return changes;
}

}  // namespace memplan
