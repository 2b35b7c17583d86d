// Arithmetic on the contents of small tensors.
#pragma once

#include <functional>
#include <optional>

#include "estimators/frontends/onnx/inferred.h"

namespace memplan::onnx_format {

/// For each element of a tensor of `out` sizes, the row-major index of the element of `in` that broadcasts to it.
std::vector<std::size_t> broadcast_index(const Sizes& in, const Sizes& out);

/// Elements of `from` picked by index.
Contents pick(const Contents& from, const std::vector<std::size_t>& index);

/// Contents of `from` as another element type.
Contents converted(const Contents& from, DType to);

/// Row-major strides.
Sizes strides_of(const Sizes& sizes);

}  // namespace memplan::onnx_format
