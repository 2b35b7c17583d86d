#include "estimators/transforms/nested_checkpointing.h"

#include <algorithm>
#include <limits>

#include "estimators/base/error.h"

namespace memplan {

namespace {

/// binom(a, b), or the largest number where it is more.
std::int64_t binomial(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (b < 0 || b > a) return 0;
  b = std::min(b, a - b);
  std::int64_t value = 1;
  for (std::int64_t i = 1; i <= b; ++i) {
    value = value * (a - b + i) / i;
    if (value > most) return most;
  }
  return value;
}

CheckpointRegion around(const std::vector<CheckpointRegion>& blocks, std::size_t begin, std::size_t end) {
  CheckpointRegion r{blocks[begin].first, blocks[end - 1].last, blocks[begin].scope, {}};
  for (std::size_t i = begin + 1; i < end; ++i) r.others.push_back(blocks[i].scope);
  return r;
}

/// How many of `steps` steps to go before the next state is stored: what is ahead has one state less, what is left
/// behind is reversed afterwards with all of them. The most that costs least: fewer stretches follow.
std::int64_t split(std::int64_t steps, std::int64_t states) {
  if (states == 1) return steps - 1;
  std::int64_t best = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t m = 1; m < steps; ++m) {
    const std::int64_t cost = m + revolve_cost(steps - m, states - 1).advances + revolve_cost(m, states).advances;
    if (cost <= least) best = m, least = cost;
  }
  return best;
}

void reverse(const std::vector<CheckpointRegion>& blocks, std::size_t begin, std::size_t end, std::int64_t states,
             std::vector<CheckpointRegion>& out) {
  while (end - begin > 1) {
    const std::size_t stop = begin + static_cast<std::size_t>(split(static_cast<std::int64_t>(end - begin), states));
    out.push_back(around(blocks, begin, stop));
    reverse(blocks, begin, stop, states, out);
    begin = stop;
    --states;
  }
}

}  // namespace

RevolveCost revolve_cost(std::int64_t steps, std::int64_t states) {
  if (steps < 1 || states < 1) fail(ErrorKind::usage, "a chain needs a step and a place for its first state");
  std::int64_t r = 0;
  while (binomial(states + r, states) < steps) ++r;
  return {r, r * steps - binomial(states + r, states + 1)};
}

std::vector<CheckpointRegion> revolve_stretches(const std::vector<CheckpointRegion>& blocks, std::int64_t states,
                                                bool last_too) {
  std::vector<CheckpointRegion> out;
  if (blocks.empty()) return out;
  reverse(blocks, 0, blocks.size(), states, out);
  if (last_too) out.push_back(around(blocks, blocks.size() - 1, blocks.size()));
  return out;
}

}  // namespace memplan
