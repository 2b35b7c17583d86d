// Which strategies a setup may ask for.
#pragma once

#include "estimators/setup/setup.h"

namespace memplan {

/// Failure(usage) for a strategy that memplan does not model, so that none is silently left out of an estimate.
void check_strategies(const TrainingSetup& setup);

}  // namespace memplan
