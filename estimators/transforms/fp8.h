// Linears in 8 bits, as NVIDIA's Transformer Engine runs te.Linear with delayed scaling under fp8_autocast
// (transformer_engine/pytorch/module/linear.py). What its kernels allocate is in
// estimators/runtime/torch/aten/rows/fp8.cpp.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

struct TrainingSetup;

/// Every nn.Linear but the last one runs in 8 bits, and with Fp8::primary its weight is kept in 8 bits. `tape` is one
/// rank's: layers whose weight is not a multiple of 16 in both directions stay as they are, and a note says how many.
/// Failure(usage) where none is left.
void linears_in_fp8(Tape& tape, const TrainingSetup& setup);

/// What is not modelled together with 8 bits. Failure(usage) names the field.
void check_fp8(const TrainingSetup& setup);

}  // namespace memplan
