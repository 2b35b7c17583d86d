// Which of a file's stored tensors are parameters, buffers and constants, and what they are called.
#pragma once

#include <vector>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

/// Makes the tape's parameters, buffers and constants, in the order of the file. `reads[i]` are the values that node i
/// reads as tensors. A tensor that a tool renamed ("onnx::MatMul_12") gets the name of the module that uses it.
void store_initializers(const InferredValues& inferred, const std::vector<std::vector<GraphValueId>>& reads,
                        Values& values, Tape& tape);

}  // namespace memplan::onnx_format
