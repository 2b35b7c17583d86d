// What rows of reductions share.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace op {

/// Dimensions from 0 on; all where there are none.
Dims normalized(const Tensor& x, const Dims& dims);
Dims reduced_sizes(const Tensor& x, const Dims& dims, bool keepdim);
/// The result of one reduction kernel. `acc_bytes` of a partial result: sums of half types are kept in fp32, extremes
/// in the type itself.
Tensor reduced(Run& r, const Tensor& x, const Dims& dims, bool keepdim, DType dtype, int acc_bytes = 0);

}  // namespace op

namespace reduced {

/// A dtype argument; none where it is None.
inline std::optional<DType> dtype_of(const Args& a, std::size_t i) {
  auto d = a.dtype(i);
  return d.empty() ? std::nullopt : std::optional(d[0]);
}

/// One dimension or a list of them, none of which is below 0; all where it is None.
inline Dims dims_of(const Tensor& x, const Args& a, std::size_t i) {
  if (a.none(i)) return op::normalized(x, {});
  return op::normalized(x, a[i].is_list() ? a.dims(i) : Dims{a.integer(i)});
}

/// What the formulas of reductions read besides tensors.
inline Bindings reduction_constants(const Tensor& x, const Dims& dims, bool keepdim, double scale = 1) {
  Bindings b;
  ValueList list;
  for (auto d : dims) list.emplace_back(d);
  b.set("dim", std::move(list));
  b.set("keepdim", keepdim);
  b.set("rank", static_cast<std::int64_t>(x->rank()));
  b.set("scale", scale);
  return b;
}

inline void add_derived(OpTable& t, std::initializer_list<const char*> names, const char* schema, Kernel kernel,
                        const char* derivatives) {
  for (const char* n : names) t.add(n, schema, kernel).derivatives = Derivatives(derivatives);
}

}  // namespace reduced

}  // namespace memplan
