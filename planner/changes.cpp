// Small changes to a setup that does not fit.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>

#include "estimators/base/threads.h"
#include "estimators/estimate/range.h"
#include "estimators/setup/field.h"
#include "planner/checkpointing/plan.h"
#include "planner/search.h"
#include "planner/tapes.h"

namespace memplan {

Alternative alternative_of(std::string flags, const Estimate& e, const Device& device, Bytes margin) {
  const Judgement j = judge(e, device, margin);
  return {std::move(flags), e.peak.process, j.verdict, j.headroom};
}

namespace {

struct Change {
  std::string flags;
  TrainingSetup setup;
};

/// Tries changes to a setup; those that come out smaller than it is are worth saying.
class Changes {
 public:
  Changes(const Model& model, const Device& device, Bytes margin, Bytes known)
      : tapes_(model), device_(device), margin_(margin), known_(known) {}

  std::optional<Alternative> tried(const Change& change) {
    const Result<Estimate> e = tapes_.estimate_to_judge(change.setup, device_, margin_);
    return e ? smaller(change.flags, *e) : std::nullopt;
  }

  std::optional<Alternative> smaller(const std::string& flags, const Estimate& e) const {
    if (e.peak.process >= known_) return std::nullopt;
    return alternative_of(flags, e, device_, margin_);
  }

 private:
  Tapes tapes_;
  const Device& device_;
  const Bytes margin_, known_;
};

using Found = std::vector<Alternative>;

/// Mixed precision, checkpointed blocks, and both.
std::vector<Change> single_changes(const TrainingSetup& setup, const Device& device) {
  std::vector<Change> changes;
  // Cards before compute capability 8.0 have no bfloat16 units.
  const bool bf16 = device.sm_major >= 8, to_amp = setup.precision == Precision::fp32;
  const std::string amp_flags = setting(Field::autocast, bf16 ? "bf16" : "fp16"),
                    blocks_flags = setting(Field::checkpoint, "blocks");
  TrainingSetup amp = setup;
  amp.precision = bf16 ? Precision::amp_bf16 : Precision::amp_fp16;
  if (to_amp) changes.push_back({amp_flags, amp});
  if (setup.mode != Mode::training || !setup.checkpoint.empty()) return changes;
  TrainingSetup blocks = setup;
  blocks.checkpoint = {"blocks"};
  changes.push_back({blocks_flags, blocks});
  amp.checkpoint = {"blocks"};
  if (to_amp) changes.push_back({amp_flags + " " + blocks_flags, amp});
  return changes;
}

/// A compiled module, and of one that is compiled the largest budget that is enough, or the least. A recording has what
/// it ran.
Found compiled(Changes& changes, const Model& model, const TrainingSetup& setup) {
  Found found;
  if (setup.mode != Mode::training || model.recorded) return found;
  TrainingSetup compiled = setup;
  compiled.compile = true;
  const auto attempt = [&](std::string flags) {
    std::optional<Alternative> smaller = changes.tried({std::move(flags), compiled});
    found.clear();
    if (smaller) found.push_back(std::move(*smaller));
    return !found.empty() && found.back().verdict == Verdict::fits;
  };
  if (!setup.compile) {
    attempt(setting(Field::compile));
    return found;
  }
  for (const char* budget : {"0.7", "0.5", "0.3", "0.1", "0"}) {
    compiled.activation_memory_budget = std::strtod(budget, nullptr);
    if (compiled.activation_memory_budget >= setup.activation_memory_budget) continue;
    if (attempt(setting(Field::activation_memory_budget, budget))) break;
  }
  return found;
}

/// The same samples per optimizer step, in smaller portions.
Found in_portions(Changes& changes, const TrainingSetup& setup, std::optional<Bytes> limit) {
  Found found;
  if (setup.mode != Mode::training || !setup.batch) return found;
  for (std::int64_t parts = 2; parts <= 16 && *setup.batch % parts == 0; parts *= 2) {
    TrainingSetup smaller = setup;
    smaller.batch = *setup.batch / parts;
    smaller.accumulate = setup.accumulate * parts;
    std::optional<Alternative> change = changes.tried(
        {setting(Field::batch, *smaller.batch) + " " + setting(Field::accumulate, smaller.accumulate), smaller});
    if (!change) continue;
    found.push_back(std::move(*change));
    if (found.back().verdict == Verdict::fits && (!limit || found.back().peak <= *limit)) break;
  }
  return found;
}

/// Weights larger than the card stay so with all of these changes.
bool are_hopeless(const Estimate& known, const Device& device) {
  return std::ranges::any_of(
      known.parts, [&](const CategoryPart& p) { return p.part == Part::parameters && p.bytes > device.total; });
}

}  // namespace

std::vector<Alternative> smaller_changes(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                         const Device& device, Bytes margin, const Estimate& known,
                                         std::optional<Bytes> limit) {
  if (!limit && are_hopeless(known, device)) return {};
  Changes changes(model, device, margin, known.peak.process);
  std::vector<std::function<Found()>> tries;
  for (const Change& single : single_changes(setup, device))
    tries.push_back([&changes, single] {
      std::optional<Alternative> smaller = changes.tried(single);
      return smaller ? Found{std::move(*smaller)} : Found{};
    });
  tries.push_back([&] { return compiled(changes, model, setup); });
  tries.push_back([&] { return in_portions(changes, setup, limit); });
  if (!setup.allocator.expandable_segments)
    tries.push_back([&]() -> Found {
      TrainingSetup expandable = setup;
      expandable.allocator.expandable_segments = true;
      Result<Estimate> e = estimate_planned_tape(tape, expandable, device);
      if (!e) return {};
      conclude_range(*e, known.sources);
      std::optional<Alternative> smaller = changes.smaller(setting(Field::allocator, "expandable_segments:True"), *e);
      return smaller ? Found{std::move(*smaller)} : Found{};
    });
  std::vector<Found> found(tries.size());
  in_parallel(tries.size(), [&](std::size_t i) { found[i] = tries[i](); });
  Found all;
  for (Found& some : found) std::move(some.begin(), some.end(), std::back_inserter(all));
  std::stable_sort(all.begin(), all.end(), [](const Alternative& x, const Alternative& y) { return x.peak < y.peak; });
  return all;
}

}  // namespace memplan
