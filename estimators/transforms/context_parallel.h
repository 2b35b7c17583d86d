// Context parallelism: every rank works on its share of the sequence and gathers keys and values for attention.
#pragma once

#include <cstdint>

#include "estimators/graph/dims.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Leaves `sizes` a rank's share of the open sequence dimensions: its forward pass sees no more. To be called before
/// the model is lowered. Failure(usage) where there is none, or where the ranks do not divide one.
void share_sequence(const Model& model, std::int64_t ranks, Symbols& sizes);

/// Puts an all-gather along the sequence before every attention's keys, values and mask (as Llama 3 was trained; the
/// gradients are reduce-scattered). The tape is already that of a share of the sequence. Failure(usage) for a model
/// without scaled dot product attention.
void gather_keys_and_values(Tape& tape, std::int64_t ranks);

}  // namespace memplan
