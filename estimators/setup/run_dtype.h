// The dtype that a model's products run in.
#pragma once

#include "estimators/setup/setup.h"

namespace memplan {

/// FSDP's mixed precision (MixedPrecisionPolicy(param_dtype)) runs a model of fp32 shards as if it had been converted.
Precision dtype_of_run(const TrainingSetup& setup);

}  // namespace memplan
