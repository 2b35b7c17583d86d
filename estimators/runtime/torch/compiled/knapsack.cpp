#include "estimators/runtime/torch/compiled/knapsack.h"

#include <algorithm>
#include <cmath>

namespace memplan::compiled {

namespace {

constexpr double steps_of_one = 10'000;

/// Halves go to the even neighbour, as Python's round has it.
std::size_t quantized(double part) { return static_cast<std::size_t>(std::nearbyint(part * steps_of_one)); }

}  // namespace

std::vector<bool> worth_keeping(const std::vector<double>& memory, const std::vector<double>& costs, double room) {
  const std::size_t items = memory.size(), places = quantized(room) + 1;
  std::vector<float> best(places, 0.0F), before;
  std::vector<std::vector<bool>> better(items, std::vector<bool>(places, false));
  for (std::size_t i = 0; i < items; ++i) {
    const std::size_t size = quantized(memory[i]);
    const auto cost = static_cast<float>(costs[i]);
    before = best;
    for (std::size_t j = size; j < places; ++j) {
      const float with = before[j - size] + cost;
      if (size == 0 || with > before[j]) best[j] = with;
      better[i][j] = best[j] != before[j];
    }
  }
  std::vector<bool> kept(items, false);
  std::size_t j = places - 1;
  for (std::size_t i = items; i-- > 0;) {
    if (!better[i][j]) continue;
    kept[i] = true;
    j -= quantized(memory[i]);
  }
  return kept;
}

}  // namespace memplan::compiled
