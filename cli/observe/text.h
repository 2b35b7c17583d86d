// An observation for people.
#pragma once

#include <string>

#include "cli/observe/observation.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

/// `rows` of the table of blocks, 0 for all.
std::string observation_text(const Observation& o, std::size_t rows, const Style& style);

}  // namespace memplan::cli
