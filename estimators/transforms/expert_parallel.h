// Expert parallelism: every rank holds some of the experts and works on the tokens of all ranks of its group.
#pragma once

#include <cstdint>

#include "estimators/tape/tape.h"

namespace memplan {

/// Keeps the first 1/ranks of every list of experts (modules "….experts.<i>"). What they take is gathered from the
/// ranks along the first dimension, what they return is reduce-scattered: balanced routing. Where the removed experts'
/// results were used, results of the kept ones stand, which have the same size. Failure(usage) for models without such
/// modules and for ranks that do not divide the experts.
void share_experts(Tape& tape, std::int64_t ranks);

}  // namespace memplan
