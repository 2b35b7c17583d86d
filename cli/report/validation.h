// The report of memplan validate: predicted against measured, for people and as JSON (docs/validate.schema.json).
#pragma once

#include <string>

#include "cli/flags/options.h"
#include "cli/terminal/style.h"
#include "estimators/facts/device.h"
#include "estimators/measured/compare.h"
#include "estimators/measured/measurement.h"

namespace memplan::cli {

struct Validation {
  Measurement measured;
  Comparison comparison;
  Estimate estimate;
  Device device;                        ///< that the prediction is for
  double tolerance = 2;                 ///< percent
  std::string predicted_out_of_memory;  ///< where the prediction runs out, or empty
  bool agrees = true;
  std::string why;  ///< one sentence for `agrees`
};

std::string text_validation(const Validation& v, const Options& options, const Style& style);
std::string json_validation(const Validation& v, const Options& options, int exit_code);

}  // namespace memplan::cli
