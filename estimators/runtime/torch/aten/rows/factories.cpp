// Tensors drawn at random, windows of signals and places in triangles.
#include <algorithm>
#include <cmath>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/sorting.h"

namespace memplan {

namespace {

/// The draw has no gradient; what it is made of gets zeros.
ValueList drawn(Run& r, const Tensor& like, const TensorList& made_of) {
  Tensor y = r.empty_like(like);
  r.record(made_of, {y}, [made_of = made_of.size()](Run& r, Node& n, TensorList&) {
    TensorList out(made_of);
    for (std::size_t i = 0; i < made_of; ++i)
      if (n.wants(static_cast<int>(i))) out[i] = r.empty(n.inputs[i].sizes, n.inputs[i].dtype);
    return out;
  });
  return {y};
}

/// Noise, scaled by the deviations and moved by the means (native/DistributionTemplates.h).
ValueList run_normal(Run& r, Args& a) {
  const bool means = a[0].is_tensor(), both = means && a[1].is_tensor();
  Tensor like = a.tensor(means ? 0 : 1), spread = both ? r.empty_like(like) : Tensor();
  ValueList y = drawn(r, like, {like});
  if (means && !both) Tensor moved = r.empty_like(like);
  return y;
}

/// Random keys sorted with the numbers that they stand for (native/cuda/Randperm.cu).
ValueList run_randperm(Run& r, Args& a) {
  const std::int64_t n = a.integer(0);
  Tensor y = r.empty({n}, a.dtype_or(1, DType::int64));
  { Tensor counter = r.empty({}, DType::int64); }
  Tensor range = r.empty({n}, y->dtype);
  if (n < 2) return {y};
  // As many bits that no key is likely to come twice.
  const double size = static_cast<double>(n);
  const int bits =
      static_cast<int>(std::min(64.0, std::ceil(std::log2(size - (6 * size * size + 1) / (12 * std::log(0.9))))));
  const DType key = bits <= 32 ? DType::int32 : DType::int64;
  Tensor keys = r.empty({n}, key), sorted = r.empty({n}, key);
  Tensor scratch = r.scratch(radix_sort_temp(r, n, bits_of(key) / 8, bits));
  for (Tensor* done : {&scratch, &sorted, &keys, &range}) *done = {};
  return {y};
}

/// A periodic window is one number longer and cut (native/TensorFactories.cpp).
Tensor window(Run& r, const Args& a, bool periodic, std::size_t dtype) {
  const std::int64_t n = a.integer(0);
  Tensor w = r.empty({n + (periodic && n > 1)}, a.dtype_or(dtype, DType::float32));
  return periodic && n > 1 ? op::slice(r, w, 0, 0, n) : w;
}

ValueList run_window(Run& r, Args& a) { return {window(r, a, a.none(1) || a.boolean(1), a.size() - 1)}; }

/// Terms of cosines, each a tensor of its own; they go when their sum is there.
ValueList run_window_of_terms(Run& r, Args& a, int terms) {
  const bool periodic = a.none(1) || a.boolean(1);
  Tensor w = window(r, a, periodic, a.size() - 1);
  TensorList more;
  for (int i = 0; i < terms; ++i) more.push_back(r.empty({w->sizes[0] + periodic}, w->dtype));
  Tensor result = periodic ? op::slice(r, more.back(), 0, 0, w->sizes[0]) : more.back();
  w = {};
  while (!more.empty()) more.pop_back();
  return {result};
}

/// Rows and columns of the places in a triangle.
ValueList run_triangle(Run& r, Args& a) {
  const std::int64_t rows = a.integer(0), columns = a.integer(1), offset = a.integer(2);
  const bool upper = a.op() == "aten::triu_indices";
  if (rows < 0 || columns < 0 || rows > 1'000'000) fail_input("a triangle of such a size", std::string(a.op()));
  std::int64_t places = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t below = std::clamp<std::int64_t>(upper ? i + offset : i + offset + 1, 0, columns);
    places += upper ? columns - below : below;
  }
  return {r.empty({2, places}, a.dtype_or(3, DType::int64))};
}

ValueList drawn_sized(Run& r, const Args& a, std::size_t size, DType usual) {
  return {r.empty(a.dims(size), a.dtype_or(size + 1, usual))};
}

}  // namespace

void register_factories(OpTable& t) {
  t.add("aten::randint", "high, size, dtype=None", [](Run& r, Args& a) { return drawn_sized(r, a, 1, DType::int64); });
  t.add("aten::randint.low", "low, high, size, dtype=None",
        [](Run& r, Args& a) { return drawn_sized(r, a, 2, DType::int64); });
  t.add("aten::normal.float_float", "mean, std, size, dtype=None",
        [](Run& r, Args& a) { return drawn_sized(r, a, 2, DType::float32); });
  t.add("aten::randint_like.low_dtype", "self, low, high, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {r.empty_like(a.tensor(0), a.dtype_or(3, a.tensor(0)->dtype))}; });
  t.add("aten::randperm", "n, dtype=None", run_randperm);
  for (const char* name : {"aten::normal.Tensor_float", "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor"})
    t.add(name, "mean, std=1", run_normal);
  t.add("aten::poisson", "self", [](Run& r, Args& a) -> ValueList { return drawn(r, a.tensor(0), {a.tensor(0)}); });
  for (const char* name : {"aten::random_.from", "aten::random_.to"})
    t.add(name, "self, a=None, b=None", [](Run&, Args& a) -> ValueList { return {a.tensor(0)}; });
  for (const std::string name : {"hann_window", "bartlett_window", "hamming_window"}) {
    t.add("aten::" + name, "window_length, periodic=True, dtype=None", run_window);
    t.add("aten::" + name + ".periodic", "window_length, periodic, dtype=None", run_window);
  }
  t.add("aten::hamming_window.periodic_alpha", "window_length, periodic, alpha, dtype=None", run_window);
  t.add("aten::hamming_window.periodic_alpha_beta", "window_length, periodic, alpha, beta, dtype=None", run_window);
  for (const char* name : {"aten::blackman_window", "aten::blackman_window.periodic"})
    t.add(name, "window_length, periodic=True, dtype=None",
          [](Run& r, Args& a) { return run_window_of_terms(r, a, 4); });
  for (const char* name : {"aten::kaiser_window", "aten::kaiser_window.periodic"})
    t.add(name, "window_length, periodic=True, dtype=None",
          [](Run& r, Args& a) { return run_window_of_terms(r, a, 1); });
  t.add("aten::kaiser_window.beta", "window_length, periodic, beta, dtype=None",
        [](Run& r, Args& a) { return run_window_of_terms(r, a, 1); });
  t.add("aten::fft_fftfreq", "n, d=1.0, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {r.empty({a.integer(0)}, a.dtype_or(2, DType::float32))}; });
  t.add("aten::fft_rfftfreq", "n, d=1.0, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {r.empty({a.integer(0) / 2 + 1}, a.dtype_or(2, DType::float32))}; });
  t.add("aten::logspace", "start, end, steps, base=10.0, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {r.empty({a.integer(2)}, a.dtype_or(4, DType::float32))}; });
  for (const char* name : {"aten::triu_indices", "aten::tril_indices"})
    t.add(name, "row, col, offset=0, dtype=None", run_triangle);
}

}  // namespace memplan
