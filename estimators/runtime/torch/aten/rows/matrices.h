// What rows of linear algebra share.
#pragma once

#include <algorithm>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan::linear {

inline void expect_matrix(const Dims& sizes) {
  if (sizes.size() < 2) fail_input("a matrix is needed", {}, "the model file does not fit these shapes");
}

/// Leading sizes, and the last two.
inline Dims batch_of(const Dims& sizes) {
  expect_matrix(sizes);
  Dims out;
  for (int i = 0; i + 2 < sizes.size(); ++i) out.push_back(sizes[i]);
  return out;
}
inline Dims batch_of(const Tensor& x) { return batch_of(x->sizes); }

inline std::int64_t rows_of(const Tensor& x) {
  expect_matrix(x->sizes);
  return x->sizes[x->rank() - 2];
}

inline std::int64_t columns_of(const Tensor& x) {
  expect_matrix(x->sizes);
  return x->sizes[x->rank() - 1];
}

inline Dims with(Dims batch, std::initializer_list<std::int64_t> more) {
  for (const std::int64_t n : more) batch.push_back(n);
  return batch;
}

/// What cuSOLVER works in is only known on a device. LAPACK's own routines want at most 4 n^2 + 7 n elements (?gesdd),
/// and less for all else: the range has that much more.
inline void note_workspace(Run& r, std::string_view op, const Tensor& x) {
  const std::int64_t n = std::max(rows_of(x), columns_of(x));
  std::int64_t elements = checked_add(checked_mul(4, checked_mul(n, n)), checked_mul(7, n));
  for (const std::int64_t matrices : batch_of(x)) elements = checked_mul(elements, matrices);
  r.note(op, About::op, Evidence::assumed, "what cuSOLVER works in is only known on a device",
         Effect{Bytes(), bytes_of(x->dtype, elements)});
}

/// A gradient of the input's shape by way of `steps` matrices of that shape, of which each lives to the end.
inline Backward by_products(int steps) {
  return [steps](Run& r, Node& n, TensorList&) {
    TensorList made;
    const InputMeta& of = n.inputs[0];
    for (int i = 0; i < steps; ++i) made.push_back(r.empty(of.sizes, of.dtype));
    Tensor out = made.back();
    while (!made.empty()) made.pop_back();
    return TensorList{out};
  };
}

/// The inverse and LAPACK's word on it; `check` reads the latter.
ValueList inverse(Run& r, const Tensor& x, bool check);
/// U, S and Vh, or S alone.
ValueList svd(Run& r, const Tensor& x, bool full, bool values_alone);

}  // namespace memplan::linear
