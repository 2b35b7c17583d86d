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

namespace {

/// The regions as words, by which another reading of the file has the same checkpoints; none where words do not say it.
std::vector<std::string> words_of(const Tape& tape, const Tape& planned) {
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

Planned with_regions(const Tape& tape, const TrainingSetup& setup, std::vector<CheckpointRegion> regions) {
  Planned p{tape, setup};
  p.tape.checkpoints = std::move(regions);
  p.setup.checkpoint_optimal = false;
  p.setup.checkpoint = words_of(tape, p.tape);
  return p;
}

void note_plan(Tape& tape, std::string text) {
  tape.notes.push_back({"MP050 checkpoint-plan", std::move(text), Evidence::assumed, About::checkpointing});
}

std::string nothing_to_recompute(Bytes budget) {
  return fmt::format("everything fits below {}: no module needs to be recomputed", to_human(budget));
}

Planned planned_for(const Tape& tape, const TrainingSetup& setup, const Device& device, Bytes room) {
  if (setup.mode != Mode::training) return with_regions(tape, setup, {});
  const CheckpointPlan plan = unwrap(plan_checkpoints(tape, setup, device, room));
  Planned p = with_regions(tape, setup, plan.regions);
  note_plan(
      p.tape,
      plan.regions.empty()
          ? nothing_to_recompute(plan.budget)
          : fmt::format("checkpointing {} recomputes {:.1f} % of the forward pass and stays at {} of {}{}",
                        fmt::join(checkpoint_words(p.tape), ","), 100 * plan.cost / plan.forward, to_human(plan.peak),
                        to_human(plan.budget), room.count > 0 ? ", which leaves room for the range" : ""));
  return p;
}

/// The setup with its ranks, where they suit the tape.
TrainingSetup checked(const Tape& tape, TrainingSetup setup) {
  const Ranks ranks = resolve(setup.parallel);
  setup.parallel = ranks;
  check_parallel(tape, setup, ranks);
  return setup;
}

/// Whether the verdict is `fits` by what is known of an estimate, with its range or without.
auto where_it_fits(const Device& device, Bytes margin) {
  return [&device, margin](const Estimate& e) { return judge(e, device, margin).verdict == Verdict::fits; };
}

struct Answered {
  Planned planned;
  Estimate estimate;
};

/// A plan whose range goes beyond what the card has is made again with that much room, and where that is not enough,
/// the smallest step is tried. The first plan is kept where nothing helps.
template <class Run>
Answered with_room(const Tape& tape, const TrainingSetup& given, const Device& device, const Run& run) {
  const TrainingSetup setup = checked(tape, given);
  const auto answered = [&](Planned p) {
    Estimate e = run(p.tape, p.setup);
    return Answered{std::move(p), std::move(e)};
  };
  Answered first = answered(planned_for(tape, setup, device, Bytes()));
  if (setup.mode != Mode::training) return first;
  const Bytes margin = margin_of(setup, device);
  const auto fits = where_it_fits(device, margin);
  if (fits(first.estimate)) return first;
  const Bytes peak = first.estimate.peak.process, high = first.estimate.high.process;
  const Bytes over =
      std::max(std::max(peak, high - context_above(first.estimate)) - (device.total - margin), high - device.total);
  // What the plan leaves free by itself is no room for a range that goes beyond it. A budget of the user's own bounds
  // what PyTorch's counter says, which goes down by as much.
  const Bytes room = setup.checkpoint_budget ? over : over + std::max(Bytes(), device.total - margin - peak);
  Result<Answered> second = catching([&] { return answered(planned_for(tape, setup, device, room)); });
  if (second && fits(second->estimate)) return std::move(*second);
  Result<Answered> third =
      catching([&] { return answered(with_regions(tape, setup, unwrap(smallest_step(tape, setup, device)).regions)); });
  return third && fits(third->estimate) ? std::move(*third) : std::move(first);
}

/// An estimate, with its range where `wants_range` says so; up to `limit`, where there is one.
template <class Wanted>
auto ranged(const Model& model, const Device& device, const Wanted& wants_range, RangeLimit* limit = nullptr) {
  return [&model, &device, wants_range, limit](const Tape& tape, const TrainingSetup& setup) {
    std::shared_ptr<const Schedule> ran;
    Estimate e = unwrap(estimate_tape(tape, setup, device, &ran));
    if (!wants_range(e)) return e;
    return unwrap(limit ? with_range_up_to(model, tape, setup, device, std::move(e), *limit, ran.get())
                        : with_range(model, tape, setup, device, std::move(e), ran.get()));
  };
}

template <class Run>
Estimate estimated(const Tape& tape, const TrainingSetup& setup, const Device& device, const Run& run) {
  return setup.checkpoint_optimal ? with_room(tape, setup, device, run).estimate : run(tape, setup);
}

bool always(const Estimate&) { return true; }

}  // namespace

Result<Planned> with_planned_checkpoints(const Model& model, const TrainingSetup& setup, const Device& device) {
  return catching([&] {
    Tape tape = unwrap(tape_of(model, setup));
    if (!setup.checkpoint_optimal) return Planned{std::move(tape), setup};
    return with_room(tape, setup, device, ranged(model, device, always)).planned;
  });
}

Result<Estimate> estimate_planned_tape(const Tape& tape, const TrainingSetup& given, const Device& device) {
  return catching([&] {
    if (!given.checkpoint_optimal) return unwrap(estimate_tape(tape, given, device));
    const TrainingSetup setup = checked(tape, given);
    // Where everything fits there is nothing to plan, and one run says so.
    if (setup.mode == Mode::training && !setup.checkpoint_budget) {
      const Bytes most = device.total - margin_of(setup, device);
      Planned plain = with_regions(tape, setup, {});
      note_plan(plain.tape, nothing_to_recompute(most));
      Result<Estimate> e = estimate_tape(plain.tape, plain.setup, device);
      if (e && e->peak.process <= most) return std::move(*e);
    }
    const Planned p = planned_for(tape, setup, device, Bytes());
    return unwrap(estimate_tape(p.tape, p.setup, device));
  });
}

Result<Estimate> answer_for(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return estimated(tape, setup, device, ranged(model, device, always)); });
}

Result<Estimate> estimate_to_judge(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin) {
  return catching(
      [&] { return unwrap(estimate_to_judge(model, unwrap(tape_of(model, setup)), setup, device, margin)); });
}

Result<Estimate> estimate_to_judge(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                   const Device& device, Bytes margin) {
  return catching([&] { return estimated(tape, setup, device, ranged(model, device, where_it_fits(device, margin))); });
}

Result<Estimate> estimate_to_search(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin,
                                    RangeLimit& limit) {
  return catching([&] {
    limit.process = device.total - margin;
    return estimated(unwrap(tape_of(model, setup)), setup, device,
                     ranged(model, device, where_it_fits(device, margin), &limit));
  });
}

Result<Estimate> estimate_to_search(const Model& model, const Tape& tape, const std::vector<CheckpointRegion>& regions,
                                    const TrainingSetup& setup, const Device& device, Bytes margin, RangeLimit& limit) {
  return catching([&] {
    limit.process = device.total - margin;
    const Planned p = with_regions(tape, setup, regions);
    return ranged(model, device, where_it_fits(device, margin), &limit)(p.tape, p.setup);
  });
}

Result<Estimate> estimate_planned(const Model& model, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return unwrap(estimate_planned_tape(unwrap(tape_of(model, setup)), setup, device)); });
}

}  // namespace memplan
