// Parameters that a file says its module has, and that none of its nodes reads.
#pragma once

#include "estimators/estimate/estimate.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// `x * self.gamma[i]` with a gamma of ones is nothing that an exporter's optimizer would keep. In eager code the line
/// makes one more tensor, and in training keeps what it read: as many bytes as the largest results of lines that name
/// such a parameter have, of all in training and of the largest one in inference. A module of which nothing is left but
/// such parameters, and no weight among them, counts with the largest result of its caller. Moves nothing elsewhere.
RangeSource lost_operands(const Tape& tape, const TrainingSetup& setup);

}  // namespace memplan
