// Linears of NVIDIA's Transformer Engine, which strategies/fp8.h puts into a tape.
//
//   transformer_engine::linear(x, weight, bias)
//   transformer_engine::column_linear(x, weight, bias, dim, ranks, transposed)   as memplan::column_linear
//   (aten/collectives.h); what is
//                                                                                gathered is in 8 bits
#pragma once

#include "estimators/runtime/torch/aten/op_table.h"

namespace memplan {

void register_fp8(OpTable&);

}  // namespace memplan
