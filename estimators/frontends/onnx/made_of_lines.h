// What an optimizer worked out of several parameters and buffers ahead of the run, made of them again.
#pragma once

#include <vector>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/signature.h"

namespace memplan::onnx_format {

struct MadeOfLines {
  ValueId value;
  Bytes looked_up;  ///< of the table that rows were looked up in, whose size is a guess; else 0
};

/// The calls that make the stored tensor `id` of what these lines of the signature name, whose tensors are gone:
/// parameters that were joined, a weight that was standardized or normed, a table that was looked up. `in_place`: what
/// reads it names it and no copy of it, so that a table with its heads first is a view.
MadeOfLines make_of_lines(Emit& e, GraphValueId id, const std::vector<const SignatureLine*>& lines, bool in_place);

}  // namespace memplan::onnx_format
