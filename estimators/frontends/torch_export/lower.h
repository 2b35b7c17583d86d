// From the graph of a .pt2 archive to ATen calls.
#pragma once

#include "estimators/frontends/torch_export/program.h"
#include "estimators/graph/dims.h"
#include "estimators/tape/tape.h"

namespace memplan {
struct TrainingSetup;
}

namespace memplan::torch_export {

/// Appends the program to the tape. Regions of the model with gradients off, with autocast off and checkpointed ones
/// are inlined; cond takes the larger branch; loops (while_loop, scan, map) count as one op without a row, and notes
/// say so. Failure(input) for joint forward-backward graphs and for sizes that stay open.
void lower_program(const Program& program, const Symbols& symbols, const TrainingSetup& setup, Tape& tape);

/// Failure(usage) for a bound dimension above the range that the file allows, or below it. The exporter's own lower
/// bound of 2 only keeps it from specializing on 1, so it stops nobody.
void check_ranges(const Program& program, const Symbols& symbols);

}  // namespace memplan::torch_export
