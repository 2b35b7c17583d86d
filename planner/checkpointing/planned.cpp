// Estimates of setups whose checkpoints are planned first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "estimators/base/unwrap.h"
#include "estimators/transforms/checkpointing.h"
#include "estimators/transforms/parallel.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

Result<Tape> with_planned_checkpoints(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return catching([&] {
    Tape planned = tape;
    if (!setup.checkpoint_optimal || setup.mode != Mode::training) return planned;
    const CheckpointPlan plan = unwrap(plan_checkpoints(tape, setup, device));
    planned.checkpoints = plan.regions;
    const std::string modules = fmt::format("{}", fmt::join(checkpoint_words(planned), ","));
    planned.notes.push_back(
        {"MP050 checkpoint-plan",
         plan.regions.empty()
             ? fmt::format("everything fits below {}: no module needs to be recomputed", to_human(plan.budget))
             : fmt::format("checkpointing {} recomputes {:.1f} % of the forward pass and stays at {} of {}", modules,
                           100 * plan.cost / plan.forward, to_human(plan.peak), to_human(plan.budget)),
         Evidence::assumed, About::checkpointing});
    return planned;
  });
}

namespace {

/// The plan as words, by which another reading of the file has the same checkpoints; none where words do not say it.
std::vector<std::string> words_of_plan(const Tape& tape, const Tape& planned) {
  std::vector<std::string> words = checkpoint_words(planned);
  const Result<Tape> again = catching([&] {
    Tape t = tape;
    checkpoint_modules(t, words);
    return t;
  });
  const auto alike = [](const CheckpointRegion& a, const CheckpointRegion& b) {
    return a.first == b.first && a.last == b.last;
  };
  const bool same = again && std::ranges::equal(again->checkpoints, planned.checkpoints, alike);
  return same ? words : std::vector<std::string>();
}

/// `run` for the tape and the setup, or for the tape with its planned checkpoints and the setup that needs no plan any
/// more.
template <class Run>
Estimate once_planned(const Tape& tape, const TrainingSetup& given, const Device& device, const Run& run) {
  if (!given.checkpoint_optimal) return run(tape, given);
  TrainingSetup setup = given;
  const Ranks ranks = resolve(given.parallel);
  setup.parallel = ranks;
  check_parallel(tape, setup, ranks);
  const Tape planned = unwrap(with_planned_checkpoints(tape, setup, device));
  setup.checkpoint_optimal = false;
  setup.checkpoint = words_of_plan(tape, planned);
  return run(planned, setup);
}

/// The estimate, with its range where `wants_range` says so; up to `limit`, where there is one.
template <class Wanted>
Estimate estimated(const Model& model, const Tape& tape, const TrainingSetup& given, const Device& device,
                   const Wanted& wants_range, RangeLimit* limit = nullptr) {
  return once_planned(tape, given, device, [&](const Tape& t, const TrainingSetup& setup) {
    std::shared_ptr<const Schedule> ran;
    Estimate e = unwrap(estimate_tape(t, setup, device, &ran));
    if (!wants_range(e)) return e;
    return unwrap(limit ? with_range_up_to(model, t, setup, device, std::move(e), *limit, ran.get())
                        : with_range(model, t, setup, device, std::move(e), ran.get()));
  });
}

}  // namespace

Result<Estimate> estimate_planned_tape(const Tape& tape, const TrainingSetup& given, const Device& device) {
  return catching([&] {
    return once_planned(tape, given, device, [&](const Tape& t, const TrainingSetup& setup) {
      return unwrap(estimate_tape(t, setup, device));
    });
  });
}

Result<Estimate> answer_for(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return estimated(model, tape, setup, device, [](const Estimate&) { return true; }); });
}

Result<Estimate> estimate_to_judge(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin) {
  return catching(
      [&] { return unwrap(estimate_to_judge(model, unwrap(tape_of(model, setup)), setup, device, margin)); });
}

Result<Estimate> estimate_to_judge(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                   const Device& device, Bytes margin) {
  return catching([&] {
    return estimated(model, tape, setup, device,
                     [&](const Estimate& e) { return judge(e, device, margin).verdict == Verdict::fits; });
  });
}

Result<Estimate> estimate_to_search(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin,
                                    RangeLimit& limit) {
  return catching([&] {
    limit.process = device.total - margin;
    return estimated(
        model, unwrap(tape_of(model, setup)), setup, device,
        [&](const Estimate& e) { return judge(e, device, margin).verdict == Verdict::fits; }, &limit);
  });
}

Result<Estimate> estimate_planned(const Model& model, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return unwrap(estimate_planned_tape(unwrap(tape_of(model, setup)), setup, device)); });
}

}  // namespace memplan
