#include "planner/checkpointing/chain.h"

#include <algorithm>
#include <limits>

namespace memplan {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// A step holds an exbibyte at most (docs/limits.md), the sum over its units any number of them.
constexpr std::int64_t most_bytes = std::int64_t{1} << 61;

/// A step along the chain: a unit run as it is (option -1), or a stretch.
struct ChainStep {
  std::int32_t from = 0, to = 0, option = -1;
  std::int64_t kept = 0, need = 0;
  double cost = 0;
};

/// All steps by the cut that they lead to, the unit before the stretches. Nothing is checked behind the end, so that
/// what the last step keeps is no matter.
std::vector<std::vector<ChainStep>> edges_of(const ChainProblem& problem) {
  std::vector<std::vector<ChainStep>> into(problem.units.size() + 1);
  for (std::size_t u = 0; u < problem.units.size(); ++u) {
    const ChainUnit& unit = problem.units[u];
    const auto from = static_cast<std::int32_t>(u);
    into[u + 1].push_back({from, from + 1, -1, unit.kept, unit.need, 0});
  }
  for (std::size_t o = 0; o < problem.options.size(); ++o) {
    const ChainOption& option = problem.options[o];
    into[static_cast<std::size_t>(option.last) + 1].push_back(
        {option.first, option.last + 1, static_cast<std::int32_t>(o), option.kept, option.need, option.cost});
  }
  for (ChainStep& e : into.back()) e.kept = 0;
  return into;
}

/// Costs by cut and by kept bytes in cells of a grid. A table answers at once what states would have to be sorted for.
/// A cut has cells for what can be kept before it, with one more for each step that may round up.
class CostTable {
 public:
  CostTable(const std::vector<std::vector<ChainStep>>& into, std::int64_t budget, std::int64_t grid)
      : into_(into), budget_(budget), grid_(grid), cells_(static_cast<std::size_t>(budget / grid) + 1) {
    std::vector<std::int64_t> most(into.size(), 0);
    begins_.push_back(0);
    for (std::size_t cut = 0; cut < into.size(); ++cut) {
      for (const ChainStep& e : into[cut])
        most[cut] = std::max(most[cut], most[static_cast<std::size_t>(e.from)] + e.kept);
      begins_.push_back(begins_.back() + std::min(cells_, static_cast<std::size_t>(most[cut] / grid) + cut + 1));
    }
  }

  std::size_t cell_of(std::int64_t kept) const { return std::min(static_cast<std::size_t>(kept / grid_), cells_ - 1); }
  double at(std::size_t cut, std::size_t cell) const { return costs_[begins_[cut] + cell]; }

  /// The least cost from each cell of each cut to the end, with kept bytes rounded down: no choice costs less.
  void fill_backward() {
    costs_.assign(begins_.back(), never);
    std::fill_n(row(into_.size() - 1), width(into_.size() - 1), 0.0);
    for (std::size_t cut = into_.size(); cut-- > 1;)
      for (const ChainStep& e : into_[cut]) {
        const Span span = span_of(e, e.kept / grid_);
        double* from = row(static_cast<std::size_t>(e.from));
        const double* to = row(cut) + span.shift;
        for (std::size_t j = 0; j < span.count; ++j) from[j] = std::min(from[j], to[j] + e.cost);
      }
  }

  /// The cheapest choice with kept bytes rounded up, which is one of the exact problem as well.
  ChainChoice best_rounded_up() {
    costs_.assign(begins_.back(), never);
    costs_[0] = 0;
    for (std::size_t cut = 1; cut < into_.size(); ++cut)
      for (const ChainStep& e : into_[cut]) {
        const Span span = span_of(e, rounded_up(e.kept));
        const double* from = row(static_cast<std::size_t>(e.from));
        double* to = row(cut) + span.shift;
        for (std::size_t j = 0; j < span.count; ++j) to[j] = std::min(to[j], from[j] + e.cost);
      }
    const double* last = row(into_.size() - 1);
    const double* cheapest = std::min_element(last, last + width(into_.size() - 1));
    ChainChoice choice;
    if (*cheapest == never) return choice;
    choice.feasible = true;
    choice.cost = *cheapest;
    trace(static_cast<std::size_t>(cheapest - last), choice);
    return choice;
  }

 private:
  /// Cells [0, count) from which a step may go, and how many cells further it leads.
  struct Span {
    std::size_t count = 0, shift = 0;
  };
  Span span_of(const ChainStep& e, std::int64_t shift) const {
    if (e.need > budget_ || shift >= static_cast<std::int64_t>(cells_)) return {};
    const auto by_need = static_cast<std::size_t>((budget_ - std::max<std::int64_t>(e.need, 0)) / grid_) + 1;
    const auto further = static_cast<std::size_t>(shift);
    return {std::min({by_need, cells_ - further, width(static_cast<std::size_t>(e.from))}), further};
  }
  std::int64_t rounded_up(std::int64_t kept) const { return kept / grid_ + (kept % grid_ > 0 ? 1 : 0); }
  double* row(std::size_t cut) { return costs_.data() + begins_[cut]; }
  std::size_t width(std::size_t cut) const { return begins_[cut + 1] - begins_[cut]; }

  /// The steps that led to a cell, from the end to the begin.
  void trace(std::size_t cell, ChainChoice& choice) {
    for (std::size_t cut = into_.size() - 1; cut > 0;) {
      for (const ChainStep& e : into_[cut]) {
        const Span span = span_of(e, rounded_up(e.kept));
        if (cell < span.shift || cell - span.shift >= span.count) continue;
        if (at(static_cast<std::size_t>(e.from), cell - span.shift) + e.cost != at(cut, cell)) continue;
        if (e.option >= 0) choice.options.push_back(e.option);
        cell -= span.shift;
        cut = static_cast<std::size_t>(e.from);
        break;
      }
    }
    std::reverse(choice.options.begin(), choice.options.end());
  }

  const std::vector<std::vector<ChainStep>>& into_;
  std::int64_t budget_, grid_;
  std::size_t cells_;
  std::vector<std::size_t> begins_;  ///< by cut: its first cell
  std::vector<double> costs_;
};

/// Everything before a cut: what it keeps, what it cost, and how it was reached.
struct ChainState {
  std::int64_t kept = 0;
  double cost = 0;
  const ChainStep* edge = nullptr;
  std::int32_t state = -1;  ///< of the cut that the edge comes from
};

/// Exact: at each cut the pairs of (kept, cost) that no other one beats in both, by rising kept bytes and falling cost.
/// States that cannot lead to a choice as cheap as one that is known are left out: `to_go` says what the rest costs at
/// least, `known` what that choice costs.
class Chain {
 public:
  Chain(const std::vector<std::vector<ChainStep>>& into, std::int64_t budget, const CostTable& to_go, double known)
      : into_(into), budget_(budget), to_go_(to_go), known_(known * (1 + 1e-9)), cuts_(into.size()) {}

  /// False when a cut has more than `most` states.
  bool run(std::size_t most) {
    cuts_[0].push_back({});
    for (std::size_t cut = 1; cut < cuts_.size(); ++cut) {
      for (const ChainStep& e : into_[cut]) {
        join(cuts_[static_cast<std::size_t>(e.from)], e, cut);
        std::swap(cuts_[cut], joined_);
      }
      if (cuts_[cut].size() > most) return false;
    }
    return true;
  }

  ChainChoice best() const {
    ChainChoice choice;
    if (cuts_.back().empty()) return choice;
    const ChainState* state = &cuts_.back().back();
    choice.feasible = true;
    choice.cost = choice.lower_bound = state->cost;
    while (state->edge) {
      if (state->edge->option >= 0) choice.options.push_back(state->edge->option);
      state = &cuts_[static_cast<std::size_t>(state->edge->from)][static_cast<std::size_t>(state->state)];
    }
    std::reverse(choice.options.begin(), choice.options.end());
    return choice;
  }

 private:
  /// Merges the states of `cut` with those that `e` makes of `from` into `joined_`.
  void join(const std::vector<ChainState>& from, const ChainStep& e, std::size_t cut) {
    const std::vector<ChainState>& old = cuts_[cut];
    joined_.clear();
    double cheapest = never;
    const auto add = [&](const ChainState& s) {
      if (s.cost >= cheapest) return;
      cheapest = s.cost;
      joined_.push_back(s);
    };
    std::size_t i = 0;
    for (std::size_t s = 0; s < from.size() && from[s].kept + e.need <= budget_; ++s) {
      const ChainState next{from[s].kept + e.kept, from[s].cost + e.cost, &e, static_cast<std::int32_t>(s)};
      if (next.kept > budget_ || next.cost + to_go_.at(cut, to_go_.cell_of(next.kept)) > known_) continue;
      for (; i < old.size() && (old[i].kept < next.kept || (old[i].kept == next.kept && old[i].cost <= next.cost)); ++i)
        add(old[i]);
      add(next);
    }
    for (; i < old.size(); ++i) add(old[i]);
  }

  const std::vector<std::vector<ChainStep>>& into_;
  std::int64_t budget_;
  const CostTable& to_go_;
  double known_;
  std::vector<std::vector<ChainState>> cuts_;
  std::vector<ChainState> joined_;
};

}  // namespace

ChainChoice choose_stretches(const ChainProblem& problem, std::int64_t budget, std::size_t most_states) {
  if (budget < 0) return {};
  // A long chain gets fewer states per cut, so that all of them together stay below a million.
  most_states = std::min(most_states, std::max<std::size_t>(64, 1'000'000 / (problem.units.size() + 1)));
  const auto into = edges_of(problem);
  const std::int64_t grid = std::max<std::int64_t>(1, budget / static_cast<std::int64_t>(most_states));
  CostTable to_go(into, budget, grid), up(into, budget, grid);
  to_go.fill_backward();
  if (to_go.at(0, 0) == never) return {};
  ChainChoice choice = up.best_rounded_up();
  choice.lower_bound = to_go.at(0, 0);
  Chain exact(into, budget, to_go, choice.feasible ? choice.cost : never);
  return exact.run(most_states) ? exact.best() : choice;
}

std::int64_t budget_of(const ChainProblem& problem, const std::vector<std::int32_t>& options) {
  std::int64_t kept = 0, budget = 0;
  auto next = options.begin();
  for (std::size_t u = 0; u < problem.units.size(); ++u) {
    const bool stretch =
        next != options.end() && problem.options[static_cast<std::size_t>(*next)].first == static_cast<std::int32_t>(u);
    const ChainOption step =
        stretch ? problem.options[static_cast<std::size_t>(*next++)]
                : ChainOption{0, static_cast<std::int32_t>(u), problem.units[u].kept, problem.units[u].need, 0};
    budget = std::max(budget, kept + step.need);
    kept = std::min(most_bytes, kept + step.kept);
    u = static_cast<std::size_t>(step.last);
  }
  return budget;
}

std::int64_t least_budget(const ChainProblem& problem) {
  const auto into = edges_of(problem);
  // Only whether there is a choice counts, so that the fewest kept bytes are the best that can be before a cut.
  const auto feasible = [&](std::int64_t budget) {
    std::vector<std::int64_t> kept(into.size(), -1);
    kept[0] = 0;
    for (std::size_t cut = 1; cut < into.size(); ++cut)
      for (const ChainStep& e : into[cut]) {
        const std::int64_t before = kept[static_cast<std::size_t>(e.from)];
        if (before < 0 || before + e.need > budget) continue;
        if (kept[cut] < 0 || before + e.kept < kept[cut]) kept[cut] = before + e.kept;
      }
    return kept.back() >= 0;
  };
  std::int64_t low = 0, high = 1;
  for (const ChainUnit& u : problem.units) high = std::min(most_bytes, high + u.kept + u.need);
  while (low + 1 < high) {
    const std::int64_t middle = low + (high - low) / 2;
    (feasible(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace memplan
