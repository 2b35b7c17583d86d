// Why a tensor is alive, where the run did not write it down.
#pragma once

#include <string>

#include "estimators/schedule/schedule.h"

namespace memplan {

/// What tensors of a kind wait for: "gradient, until zero_grad".
std::string default_reason(Category category);

}  // namespace memplan
