#include "estimators/setup/run_dtype.h"

namespace memplan {

Precision dtype_of_run(const TrainingSetup& setup) {
  const auto& dtype = setup.parallel.param_dtype;
  if (setup.precision != Precision::fp32 || !dtype) return setup.precision;
  return *dtype == DType::bfloat16 ? Precision::bf16 : *dtype == DType::float16 ? Precision::fp16 : Precision::fp32;
}

}  // namespace memplan
