// A run whose steps have batches of other sizes, put together from runs that have one size each.
#pragma once

#include <optional>
#include <vector>

#include "estimators/schedule/schedule.h"

namespace memplan {

/// The set-up and first step of order[0], then a step of each further schedule. What lives from one step into the next
/// is the same in all of them, in the order of its birth: parameters, optimizer state, the names of the loop. None
/// where it is not. A schedule that is asked for more steps than it has gives its last one again.
std::optional<Schedule> mixed_steps(const std::vector<const Schedule*>& order);

}  // namespace memplan
