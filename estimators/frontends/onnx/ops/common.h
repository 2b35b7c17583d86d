// What the outputs of many ops are like.
#pragma once

#include <vector>

#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

/// One output of the first input's dtype and sizes.
inline void infer_same(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = at.sizes(0);
}

}  // namespace memplan::onnx_format
