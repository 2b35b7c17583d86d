// Which stretches of a forward pass to recompute so that the backward pass stays under a budget at the least cost: the
// chain problem of Rotor (Beaumont et al., arXiv 1911.13214) for stretches that do not nest, solved exactly.
#pragma once

#include <cstdint>
#include <vector>

namespace memplan {

/// A piece of the forward pass between two neighbouring cuts, run as it is.
struct ChainUnit {
  std::int64_t kept = 0;  ///< bytes made here that wait for the backward pass
  std::int64_t need =
      0;  ///< most that is alive while this unit runs forward or backward, without what earlier units keep
};

/// Units [first, last] as one checkpointed stretch.
struct ChainOption {
  std::int32_t first = 0, last = 0;
  std::int64_t kept = 0;  ///< bytes made here that outlive the stretch
  std::int64_t need =
      0;            ///< most that is alive while it is recomputed and run backward, without what earlier units keep
  double cost = 0;  ///< of running it once more
};

struct ChainProblem {
  std::vector<ChainUnit> units;
  std::vector<ChainOption> options;
};

struct ChainChoice {
  bool feasible = false;
  std::vector<std::int32_t> options;  ///< indices, ascending by their place
  double cost = 0;
  double lower_bound = 0;  ///< no choice costs less; equal to `cost` unless the number of states was limited
};

/// The cheapest set of options that do not overlap with, for every unit or option x, kept(all before x) + need(x) <=
/// budget. Dynamic programming over the cuts with the undominated pairs of (kept, cost) as states. Exact; only where a
/// cut has more than `most_states` of them (fewer in chains above 244 units), kept bytes are rounded up to a grid, and
/// a second run that rounds them down gives the bound.
ChainChoice choose_stretches(const ChainProblem& problem, std::int64_t budget, std::size_t most_states = 4096);

/// The smallest budget under which these options, ascending by their place, are feasible.
std::int64_t budget_of(const ChainProblem& problem, const std::vector<std::int32_t>& options);

/// The smallest budget with a feasible choice.
std::int64_t least_budget(const ChainProblem& problem);

}  // namespace memplan
