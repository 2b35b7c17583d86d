// Parameters that take no gradient.
#pragma once

#include <string>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Parameters whose name matches one of the globs take no gradient. Failure(usage) for a glob that matches none.
void freeze(Tape& tape, const std::vector<std::string>& globs);

}  // namespace memplan
