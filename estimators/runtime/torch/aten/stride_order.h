// The order of dimensions in memory, as TensorIterator and empty_like find it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "estimators/runtime/torch/aten/tensor.h"

namespace memplan {

/// The insertion sort of reorder_dimensions (aten/src/ATen/TensorIterator.cpp) and infer_dense_strides
/// (TensorFactories.cpp): `should_swap(before, after)` is 1, -1, or 0 where the two cannot be told and the search goes
/// on.
template <class Item, class ShouldSwap>
void sort_by_stride(std::vector<Item>& order, ShouldSwap&& should_swap) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    std::size_t moving = i;
    for (std::size_t before = i; before-- > 0;) {
      const int c = should_swap(order[before], order[moving]);
      if (c > 0) {
        std::swap(order[before], order[moving]);
        moving = before;
      } else if (c < 0) {
        break;
      }
    }
  }
}

/// Dimensions of a tensor from the last to the first: where both sorts begin.
inline std::vector<int> reversed_dims(int rank) {
  std::vector<int> order;
  for (int i = rank - 1; i >= 0; --i) order.push_back(i);
  return order;
}

/// Strides without gaps for dimensions that follow each other in memory as in `order`, the fastest first.
inline Dims dense_strides(const Dims& sizes, const std::vector<int>& order) {
  Dims strides = Dims::filled(sizes.size(), 1);
  std::int64_t step = 1;
  for (int d : order) {
    strides[d] = step;
    step = checked_mul(step, std::max<std::int64_t>(sizes[d], 1));
  }
  return strides;
}

}  // namespace memplan
