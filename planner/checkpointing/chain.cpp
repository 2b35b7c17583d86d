#include "planner/checkpointing/chain.h"

#include <algorithm>
#include <limits>

namespace memplan {

namespace {

/// Everything before a cut: what it keeps, what it cost, and how it was reached.
struct State {
  std::int64_t kept = 0;
  double cost = 0;
  std::int32_t option = -1;  ///< that led here; -1: a unit run as it is
  std::int32_t cut = -1;     ///< where it came from
  std::int32_t state = -1;
};

enum class Rounding { none, up, down };

class Chain {
 public:
  Chain(const ChainProblem& problem, std::int64_t budget, Rounding rounding, std::int64_t grid)
      : problem_(problem), budget_(budget), rounding_(rounding), grid_(grid), starting_(problem.units.size() + 1) {
    for (std::size_t o = 0; o < problem.options.size(); ++o)
      starting_[static_cast<std::size_t>(problem.options[o].first)].push_back(static_cast<std::int32_t>(o));
  }

  /// False when a cut has more than `most` undominated states.
  bool run(std::size_t most) {
    cuts_.assign(problem_.units.size() + 1, {});
    cuts_[0].push_back({});
    for (std::size_t cut = 0; cut < cuts_.size(); ++cut) {
      prune(cuts_[cut]);
      if (cuts_[cut].size() > most) return false;
      if (cut == problem_.units.size()) break;
      const ChainUnit& unit = problem_.units[cut];
      for (std::size_t s = 0; s < cuts_[cut].size(); ++s) {
        extend(cut, s, cut + 1, unit.kept, unit.need, 0, -1);
        for (std::int32_t o : starting_[cut]) {
          const ChainOption& option = problem_.options[static_cast<std::size_t>(o)];
          extend(cut, s, static_cast<std::size_t>(option.last) + 1, option.kept, option.need, option.cost, o);
        }
      }
    }
    return true;
  }

  ChainChoice best() const {
    ChainChoice choice;
    if (cuts_.back().empty()) return choice;
    // Sorted by kept bytes with falling cost: the last is the cheapest.
    std::size_t cut = cuts_.size() - 1, s = cuts_.back().size() - 1;
    choice.feasible = true;
    choice.cost = choice.lower_bound = cuts_[cut][s].cost;
    while (cut > 0) {
      const State& state = cuts_[cut][s];
      if (state.option >= 0) choice.options.push_back(state.option);
      cut = static_cast<std::size_t>(state.cut);
      s = static_cast<std::size_t>(state.state);
    }
    std::reverse(choice.options.begin(), choice.options.end());
    return choice;
  }

 private:
  std::int64_t rounded(std::int64_t kept) const {
    if (rounding_ == Rounding::up) return (kept + grid_ - 1) / grid_ * grid_;
    if (rounding_ == Rounding::down) return kept / grid_ * grid_;
    return kept;
  }

  void extend(std::size_t cut, std::size_t s, std::size_t to, std::int64_t kept, std::int64_t need, double cost,
              std::int32_t option) {
    const State& from = cuts_[cut][s];
    if (from.kept + need > budget_) return;
    cuts_[to].push_back({rounded(from.kept + kept), from.cost + cost, option, static_cast<std::int32_t>(cut),
                         static_cast<std::int32_t>(s)});
  }

  /// Keeps the states that no other one beats in both kept bytes and cost.
  static void prune(std::vector<State>& states) {
    std::sort(states.begin(), states.end(),
              [](const State& a, const State& b) { return a.kept != b.kept ? a.kept < b.kept : a.cost < b.cost; });
    double cheapest = std::numeric_limits<double>::infinity();
    std::erase_if(states, [&](const State& s) {
      if (s.cost >= cheapest) return true;
      cheapest = s.cost;
      return false;
    });
  }

  const ChainProblem& problem_;
  std::int64_t budget_;
  Rounding rounding_;
  std::int64_t grid_;
  std::vector<std::vector<std::int32_t>> starting_;
  std::vector<std::vector<State>> cuts_;
};

}  // namespace

ChainChoice choose_stretches(const ChainProblem& problem, std::int64_t budget, std::size_t most_states) {
  // A long chain gets fewer states per cut, so that all of them together stay below a million.
  most_states = std::min(most_states, std::max<std::size_t>(64, 1'000'000 / (problem.units.size() + 1)));
  Chain exact(problem, budget, Rounding::none, 1);
  if (exact.run(most_states)) return exact.best();
  const std::int64_t grid = std::max<std::int64_t>(1, budget / static_cast<std::int64_t>(most_states));
  const auto all = std::numeric_limits<std::size_t>::max();
  Chain up(problem, budget, Rounding::up, grid), down(problem, budget, Rounding::down, grid);
  up.run(all);
  down.run(all);
  ChainChoice choice = up.best();
  const ChainChoice bound = down.best();
  choice.lower_bound = bound.feasible ? bound.cost : std::numeric_limits<double>::infinity();
  return choice;
}

std::int64_t least_budget(const ChainProblem& problem) {
  std::int64_t low = 0, high = 1;
  for (const ChainUnit& u : problem.units) high += u.kept + u.need;
  while (low + 1 < high) {
    const std::int64_t middle = low + (high - low) / 2;
    // Only whether it is feasible counts, so that the fewest kept bytes win: costs are left out.
    ChainProblem free = problem;
    for (ChainOption& o : free.options) o.cost = 0;
    (choose_stretches(free, middle).feasible ? high : low) = middle;
  }
  return high;
}

}  // namespace memplan
