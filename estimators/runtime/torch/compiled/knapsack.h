// Which values are worth their memory (torch/_functorch/_activation_checkpointing/knapsack.py, dp_knapsack).
#pragma once

#include <vector>

namespace memplan::compiled {

/// By item: whether it is kept, so that what is kept costs the most to compute again. `memory` is what each takes, as a
/// part of all; `room` is how much of all may be kept, 0 … 1. Sizes are rounded to 1/10,000 and costs to float, as
/// PyTorch has them, so that ties fall the same way.
std::vector<bool> worth_keeping(const std::vector<double>& memory, const std::vector<double>& costs, double room);

}  // namespace memplan::compiled
