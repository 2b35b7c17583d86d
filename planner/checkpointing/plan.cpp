#include "planner/checkpointing/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "estimators/base/unwrap.h"
#include "estimators/runtime/runtime.h"
#include "estimators/runtime/torch/aten/run.h"
#include "estimators/setup/field.h"
#include "estimators/setup/repetitions.h"
#include "estimators/transforms/checkpointing.h"
#include "estimators/transforms/nested_checkpointing.h"
#include "estimators/transforms/transforms.h"
#include "planner/checkpointing/chain.h"
#include "planner/checkpointing/step_profile.h"

namespace memplan {

namespace {

struct Stretch {
  CheckpointRegion region;
  std::int64_t crossing = 0;  ///< bytes made inside that later calls read, and bytes read that nothing else keeps
};

class CheckpointPlanner {
 public:
  CheckpointPlanner(const Tape& tape, const TrainingSetup& setup, const Device& device, Bytes room = {})
      : tape_(tape), setup_(setup), device_(device), room_(room) {
    tape_.checkpoints.clear();
    setup_.checkpoint_optimal = false;
    setup_.checkpoint.clear();
    setup_.steps = 2;  // the second step has all there is
  }

  CheckpointPlan run() {
    CheckpointPlan plan = unplanned();
    plan.forward = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
    const Schedule plain = unwrap(run_steps(tape_, setup_, device_));
    if (Bytes peak = peak_of(plain); peak <= plan.budget) {
      plan.peak = peak;
      return plan;
    }
    build(profile_of_step(tape_, plain));
    search(plan);
    return plan;
  }

  SmallestStep smallest() {
    CheckpointPlan plan = unplanned();
    const Schedule plain = unwrap(run_steps(tape_, setup_, device_));
    SmallestStep step{false, peak_of(plain), {}};
    step.fits = step.peak <= plan.budget;
    build(profile_of_step(tape_, plain));
    Best best;
    look_at_floor(plan, best);
    if (!step.fits && !best.found && nearly_fits(tape_, least_.peak, plan.budget)) find(plan, best);
    step.fits = step.fits || best.found;
    if (least_.peak < step.peak) step.peak = least_.peak, step.regions = least_.regions;
    return step;
  }

  /// Of the steps with these checkpoints; the tape itself has none.
  Bytes peak_under(const std::vector<CheckpointRegion>& regions) {
    const ScopedValue<std::vector<CheckpointRegion>> tried(tape_.checkpoints, regions);
    const Bytes peak = peak_of(unwrap(run_steps(tape_, setup_, device_)));
    if (least_.peak.count == 0 || peak < least_.peak) least_.peak = peak, least_.regions = regions;
    return peak;
  }

 private:
  CheckpointPlan unplanned() {
    CheckpointPlan plan;
    plan.budget = setup_.checkpoint_budget.value_or(device_.total - margin_of(setup_, device_)) - room_;
    budget_ = plan.budget;
    seconds_ = unwrap(call_seconds(tape_, setup_, device_));
    return plan;
  }

  /// What the budget bounds.
  Bytes peak_of(const Schedule& schedule) const {
    const Timeline t = unwrap(replay_unlimited(schedule, setup_, device_));
    std::int64_t peak = 0;
    for (const Sample& s : t.samples) peak = std::max(peak, setup_.checkpoint_budget ? s.allocated : s.reserved);
    return setup_.checkpoint_budget ? Bytes(peak) : Bytes(peak) + runtime_of(setup_).outside(setup_, device_);
  }

  Bytes peak_with(const std::vector<std::int32_t>& options) {
    const auto known = peaks_.find(options);
    if (known != peaks_.end()) return known->second;
    // The chain's figures are up to three times the replay's, but no more: a choice far above the budget by them is not
    // replayed where a better one was.
    const Bytes expected(budget_of(problem_, options));
    if (least_.peak.count > 0 && expected.count / 2 > std::max(least_.peak.count, budget_.count / 4 * 7))
      return peaks_[options] = expected;
    std::vector<CheckpointRegion> regions;
    for (std::int32_t o : options) regions.push_back(candidates_[static_cast<std::size_t>(o)].region);
    return peaks_[options] = peak_under(regions);
  }

  void build(const StepProfile& p) {
    candidates_.clear();
    std::vector<CheckpointRegion> regions = possible_regions(tape_);
    const std::vector<std::int64_t> crossing = crossing_bytes(tape_, setup_, device_, p, regions);
    for (std::size_t i = 0; i < regions.size(); ++i) candidates_.push_back({std::move(regions[i]), crossing[i]});
    const auto sum = [](const std::vector<std::int64_t>& v) {
      std::vector<std::int64_t> s(v.size() + 1, 0);
      std::partial_sum(v.begin(), v.end(), s.begin() + 1);
      return s;
    };
    const std::vector<std::int64_t> kept = sum(p.kept);
    const auto n = static_cast<std::int32_t>(tape_.calls.size());
    // A stretch that keeps no less than it drops is none; the others' ends are the cuts.
    std::erase_if(candidates_, [&](const Stretch& c) {
      return c.crossing >=
             kept[static_cast<std::size_t>(c.region.last) + 1] - kept[static_cast<std::size_t>(c.region.first)];
    });
    std::set<std::int32_t> cuts{0, n};
    for (const Stretch& c : candidates_) cuts.insert({c.region.first, c.region.last + 1});
    std::map<std::int32_t, std::int32_t> unit_at;
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      const auto begin = static_cast<std::size_t>(*cut), end = static_cast<std::size_t>(*std::next(cut));
      unit_at[*cut] = static_cast<std::int32_t>(problem_.units.size());
      ChainUnit unit;
      unit.kept = kept[end] - kept[begin];
      for (std::size_t i = begin; i < end; ++i)
        unit.need = std::max({unit.need, p.backward[i] - kept[begin], p.forward[i] - kept[begin]});
      problem_.units.push_back(unit);
    }
    unit_at[n] = static_cast<std::int32_t>(problem_.units.size());
    problem_.units.push_back({0, p.loss - kept.back()});
    for (const Stretch& c : candidates_) {
      const auto begin = static_cast<std::size_t>(c.region.first), end = static_cast<std::size_t>(c.region.last) + 1;
      ChainOption o;
      o.first = unit_at.at(c.region.first);
      o.last = unit_at.at(c.region.last + 1) - 1;
      o.kept = c.crossing;
      std::int64_t entry = 0, forward = 0;
      for (std::size_t i = begin; i < end; ++i) {
        o.need = std::max(o.need, p.backward[i] - kept[begin]);
        entry = std::max(entry, p.entry[i] - kept[i + 1]);
        forward = std::max(forward, p.forward[i] - p.before[begin]);
        o.cost += seconds_[i];
      }
      o.need = std::max(o.need, entry + forward);
      problem_.options.push_back(o);
    }
  }

  struct Best {
    bool found = false;
    std::vector<std::int32_t> options;
    double cost = 0;
    Bytes peak;
    std::vector<CheckpointRegion> nested;  ///< instead of options, where no choice of them fits
  };

  /// The chain by what is kept alone: what a stretch needs while it runs again is a bound that can hide choices.
  ChainProblem kept_alone() const {
    ChainProblem kept = problem_;
    for (ChainUnit& u : kept.units) u.need = 0;
    for (ChainOption& o : kept.options) o.need = 0;
    return kept;
  }

  /// A choice for the real budget; the one that costs least of those that were replayed.
  void find(CheckpointPlan& plan, Best& best) {
    plan.lower_bound = move_budget(problem_, plan.budget.count, plan, best);
    if (!best.found || best.peak.count < plan.budget.count / 100 * 97) {
      const ChainProblem kept = kept_alone();
      std::int64_t all = 0;
      for (const ChainUnit& u : kept.units) all += u.kept;
      const double bound = move_budget(kept, all / 2, plan, best);
      plan.lower_bound = std::min(plan.lower_bound, bound);
    }
    if (!best.found) nest(plan, best);
  }

  /// The choices that come out smallest as a rule, whatever they cost.
  void look_at_floor(const CheckpointPlan& plan, Best& best) {
    look(choose_stretches(problem_, least_budget(problem_)), plan, best);
    const ChainProblem kept = kept_alone();
    look(choose_stretches(kept, least_budget(kept)), plan, best);
    const auto lists = nestable_lists();
    if (!lists.empty()) look_nested(lists, 2, true, plan, best);
  }

  void search(CheckpointPlan& plan) {
    Best best;
    find(plan, best);
    if (!best.found) look_at_floor(plan, best);
    if (!best.found)
      fail(ErrorKind::usage,
           fmt::format("no choice of modules brings the step under {}; the smallest found needs {}",
                       to_human(plan.budget), to_human(least_.peak)),
           setting(Field::checkpoint, "optimal"),
           fmt::format("give at least {}, or a smaller batch", to_human(least_.peak)));
    plan.peak = best.peak;
    if (!best.nested.empty()) {
      plan.regions = std::move(best.nested);
      plan.cost = best.cost;
      plan.lower_bound = 0;
      return;
    }
    improve(plan, best.options, best.cost);
    plan.cost = best.cost;
    plan.lower_bound = std::min(plan.lower_bound, best.cost);
    for (std::int32_t o : best.options) plan.regions.push_back(candidates_[static_cast<std::size_t>(o)].region);
  }

  /// Lists of blocks that may be checkpointed one by one.
  std::vector<std::vector<CheckpointRegion>> nestable_lists() const {
    std::set<std::pair<std::int32_t, std::int32_t>> possible;
    for (const CheckpointRegion& r : possible_regions(tape_)) possible.insert({r.first, r.last});
    auto lists = lists_of_blocks(tape_);
    std::erase_if(lists, [&](const auto& list) {
      return std::any_of(list.begin(), list.end(), [&](const CheckpointRegion& r) {
        return !possible.count({r.first, r.last});
      });
    });
    return lists;
  }

  /// Replays Revolve over each list with so many stored inputs of blocks. False where that is above the budget.
  bool look_nested(const std::vector<std::vector<CheckpointRegion>>& lists, std::int64_t states, bool last_too,
                   const CheckpointPlan& plan, Best& best) {
    std::vector<CheckpointRegion> regions;
    for (const auto& list : lists)
      for (CheckpointRegion& r :
           revolve_stretches(list, std::min(states, static_cast<std::int64_t>(list.size())), last_too))
        regions.push_back(std::move(r));
    const Bytes peak = peak_under(regions);
    const double cost = recompute_seconds(regions, seconds_);
    if (peak > plan.budget) return false;
    if (!best.found || cost < best.cost) best = {true, {}, cost, peak, std::move(regions)};
    return true;
  }

  /// Below what one level of checkpoints reaches: Revolve over each list of blocks, with the most stored inputs of
  /// blocks that stay under the budget. More of them never cost more, so that these are halved.
  void nest(const CheckpointPlan& plan, Best& best) {
    const auto lists = nestable_lists();
    std::size_t most = 0;
    for (const auto& list : lists) most = std::max(most, list.size());
    // One stored input alone would nest as deep as there are blocks.
    std::int64_t low = 1, high = static_cast<std::int64_t>(most) + 1;
    while (low + 1 < high) {
      const std::int64_t middle = low + (high - low) / 2;
      (look_nested(lists, middle, true, plan, best) ? low : high) = middle;
    }
    if (best.found) look_nested(lists, low, false, plan, best);
  }

  /// Replays a choice of the chain. True where it stays under the budget.
  bool look(const ChainChoice& choice, const CheckpointPlan& plan, Best& best) {
    const Bytes peak = peak_with(choice.options);
    if (peak > plan.budget) return false;
    if (!best.found || choice.cost < best.cost) best = {true, choice.options, choice.cost, peak, {}};
    return true;
  }

  /// The chain's budget is moved until the replay of its choice is just under the real one. Returns the least cost that
  /// the chain knows at the first budget.
  double move_budget(const ChainProblem& problem, std::int64_t budget, const CheckpointPlan& plan, Best& best) {
    const std::int64_t least = least_budget(problem), slack = std::max<std::int64_t>(1, plan.budget.count / 200);
    std::int64_t low = -1, high = -1;  // low: replay stays under; high: it does not
    double bound = 0;
    for (int round = 0; round < 12; ++round) {
      budget = std::max(budget, least);
      const ChainChoice choice = choose_stretches(problem, budget);
      if (round == 0) bound = choice.lower_bound;
      const bool fits = look(choice, plan, best);
      const Bytes peak = peak_with(choice.options);
      (fits ? low : high) = budget;
      if (!fits && budget == least) break;
      if (fits && choice.options.empty()) break;
      if (low >= 0 && high >= 0 && high - low <= std::max<std::int64_t>(1, plan.budget.count / 2000)) break;
      if (low >= 0 && high >= 0)
        budget = low + (high - low) / 2;
      else if (fits)
        budget += std::max((plan.budget - peak).count, slack);
      else
        budget -= std::max((peak - plan.budget).count, slack);
    }
    return bound;
  }

  /// The figures of the chain are bounds: what the replay has room for is kept after all, the dearest stretches first.
  /// What the chain takes to be far above the budget is not replayed: its differences are right to some percent.
  void improve(CheckpointPlan& plan, std::vector<std::int32_t>& best, double& cost) {
    std::vector<std::int32_t> order = best;
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return problem_.options[static_cast<std::size_t>(a)].cost > problem_.options[static_cast<std::size_t>(b)].cost;
    });
    std::int64_t tries = tape_.calls.size() > 4000 ? 2 : tape_.calls.size() > many_calls ? 4 : 8;
    double failed = -1;
    for (std::int32_t o : order) {
      const double price = problem_.options[static_cast<std::size_t>(o)].cost;
      if (price == failed) continue;  // one of the same kind did not fit
      std::vector<std::int32_t> fewer = best;
      std::erase(fewer, o);
      const Bytes expected = plan.peak + Bytes(budget_of(problem_, fewer) - budget_of(problem_, best));
      if (expected.count > plan.budget.count / 10 * 11) {
        failed = price;
        continue;
      }
      if (tries-- == 0) break;
      const Bytes peak = peak_with(fewer);
      if (peak > plan.budget) {
        failed = price;
        continue;
      }
      best = std::move(fewer);
      cost -= price;
      plan.peak = peak;
    }
  }

  Tape tape_;
  TrainingSetup setup_;
  Device device_;
  Bytes room_, budget_;
  std::vector<double> seconds_;
  std::vector<Stretch> candidates_;
  ChainProblem problem_;
  std::map<std::vector<std::int32_t>, Bytes> peaks_;
  SmallestStep least_;  ///< of all choices that were replayed
};

}  // namespace

Result<CheckpointPlan> plan_checkpoints(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                        Bytes room) {
  return catching([&] {
    // From the second micro-batch on the requests are the same: planned with few, and replayed with all in the end.
    if (!has_few_repetitions(setup)) {
      Result<CheckpointPlan> plan =
          catching([&] { return CheckpointPlanner(tape, few_repetitions(setup), device, room).run(); });
      if (plan) {
        plan->peak = CheckpointPlanner(tape, setup, device, room).peak_under(plan->regions);
        if (plan->peak <= plan->budget) return std::move(*plan);
      }
    }
    return CheckpointPlanner(tape, setup, device, room).run();
  });
}

Result<SmallestStep> smallest_step(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return CheckpointPlanner(tape, setup, device).smallest(); });
}

Result<Bytes> peak_with_regions(const std::vector<CheckpointRegion>& regions, const Tape& tape,
                                const TrainingSetup& setup, const Device& device) {
  return catching([&] { return CheckpointPlanner(tape, setup, device).peak_under(regions); });
}

}  // namespace memplan
