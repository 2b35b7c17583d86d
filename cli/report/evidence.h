// The facts that an estimate rests on, for explain --evidence.
#pragma once

#include <string>

#include "cli/report/formats.h"
#include "cli/terminal/style.h"
#include "estimators/estimate/estimate.h"

namespace memplan::cli {

/// The strongest evidence first, facts in the order in which they were noted.
std::string evidence_table(const Estimate& estimate, const Style& style);
Json evidence_json(const Estimate& estimate);

}  // namespace memplan::cli
