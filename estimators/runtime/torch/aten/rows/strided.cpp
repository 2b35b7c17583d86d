// Views by strides of one's own.
#include <algorithm>
#include <vector>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

/// _maybe_overlapping_memory (FunctionsManual.cpp): by rising strides, one that lies within what the smaller ones
/// reach.
bool may_overlap(const Dims& sizes, const Dims& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  for (int i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1) steps.emplace_back(strides[i], sizes[i]);
  std::sort(steps.begin(), steps.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

}  // namespace

void register_strided(OpTable& t) {
  // Backward: the gradient's storage is made anew and filled through the strides (as_strided_backward), or added to,
  // place by place, where elements share memory.
  for (const char* name : {"aten::as_strided", "aten::as_strided_"})
    t.add(name, "self, size, stride, storage_offset=None", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0), y = r.alias(x, a.dims(1), a.dims(2), a.integer_or(3, x->offset));
      r.record({x}, {y},
               [sizes = x->sizes, overlaps = may_overlap(y->sizes, y->strides)](Run& r, Node&, TensorList& g) {
                 Tensor storage = r.empty(sizes, g[0]->dtype);
                 if (!overlaps) return TensorList{storage};
                 Tensor places = r.empty({storage->numel()}, DType::int64);
                 Tensor of_each = r.empty({g[0]->numel()}, DType::int64);
                 of_each = {};
                 return TensorList{storage};
               });
      r.set_base(y, x);
      return {y};
    });
}

}  // namespace memplan
