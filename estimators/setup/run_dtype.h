// The dtype that a model's products run in.
#pragma once

#include "estimators/setup/setup.h"

namespace memplan {

/// FSDP's mixed precision (MixedPrecisionPolicy(param_dtype)) runs a model of fp32 shards as if it had been converted.
Precision dtype_of_run(const TrainingSetup& setup);

/// Under torch.autocast.
inline bool is_amp(Precision p) { return p == Precision::amp_bf16 || p == Precision::amp_fp16; }

/// bfloat16 or float16, whichever the precision computes in.
inline DType half_of(Precision p) {
  return p == Precision::amp_bf16 || p == Precision::bf16 ? DType::bfloat16 : DType::float16;
}

}  // namespace memplan
