// Which Python names hold the results of calls, read from the lines of Python that the file gives.
#pragma once

#include <vector>

#include "estimators/restore/statement.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Fills Call::binding and Scope::binding where there is a source line and no binding yet: one Binding per different
/// line. Calls without a line keep none, so their results go with their last use.
void bind_names(Tape& tape);

/// By binding: its line, taken apart. The views point into the tape.
std::vector<Statement> statements(const Tape& tape);

}  // namespace memplan
