// Pooling and upsampling: one output, int64 indices where the maximum is remembered.
#include <cmath>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/whole_number.h"

namespace memplan {

namespace {

std::int64_t pooled(std::int64_t n, std::int64_t k, std::int64_t s, std::int64_t p, std::int64_t d, bool ceil_mode) {
  if (s <= 0) fail_input("a pooling has a stride that is not positive");
  const std::int64_t span = n + 2 * p - d * (k - 1) - 1;
  std::int64_t out = (span + (ceil_mode ? s - 1 : 0)) / s + 1;
  if (ceil_mode && (out - 1) * s >= n + p) --out;
  if (out <= 0) fail_input("a pooling's output is empty", {}, "the input is smaller than the window");
  return out;
}

Dims pooled_sizes(const Tensor& x, const Dims& k, const Dims& s, const Dims& p, const Dims& d, bool ceil_mode) {
  Dims out = x->sizes;
  const int lead = x->rank() - k.size();
  for (int i = 0; i < k.size(); ++i) out[lead + i] = pooled(x->sizes[lead + i], k[i], s[i], p[i], d[i], ceil_mode);
  return out;
}

/// Output with the memory format that the input suggests.
Tensor output_like(Run& r, const Tensor& x, const Dims& sizes, DType dtype) {
  const bool last = x->rank() == 4 && is_channels_last(*x) && !is_contiguous(*x);
  return last ? r.empty_strided(sizes, channels_last_strides(sizes), dtype) : r.empty(sizes, dtype);
}

/// Records a pooling whose backward is one kernel that writes the input's gradient.
void record_pool(Run& r, const Tensor& x, const Tensor& y, const Tensor& indices, bool save_input) {
  Node* node = r.record(
      {x}, {y},
      [from = x->sizes, strides = x->strides, dense = is_non_overlapping_and_dense(*x)](Run& r, Node&, TensorList& g) {
        return TensorList{dense ? r.empty_strided(from, strides, g[0]->dtype) : r.empty(from, g[0]->dtype)};
      });
  if (save_input) r.save(node, x);
  if (indices) r.save_output(node, indices);
}

template <int n>
ValueList run_max_pool(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims k = a.dims_n(1, n);
  const Dims s = a.none(2) || (a[2].is_list() && a[2].list().empty()) ? k : a.dims_n(2, n);
  const Dims sizes = pooled_sizes(x, k, s, a.dims_n(3, n), a.dims_n(4, n), a.boolean(5));
  Tensor y = output_like(r, x, sizes, x->dtype);
  Tensor indices = output_like(r, x, sizes, DType::int64);
  record_pool(r, x, y, indices, true);
  if (a.op().find("with_indices") != std::string_view::npos) return {y, indices};
  return {y};
}

template <int n>
ValueList run_avg_pool(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims k = a.dims_n(1, n);
  const Dims s = a.none(2) || (a[2].is_list() && a[2].list().empty()) ? k : a.dims_n(2, n);
  Tensor y = output_like(r, x, pooled_sizes(x, k, s, a.dims_n(3, n), Dims::filled(n, 1), a.boolean(4)), x->dtype);
  record_pool(r, x, y, {}, true);
  return {y};
}

template <int n>
ValueList run_adaptive_avg(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Dims out = a.dims_n(1, n), sizes = x->sizes, last;
  bool one = true;
  for (int i = 0; i < n; ++i) {
    last.push_back(x->rank() - n + i);
    sizes[x->rank() - n + i] = out[i];
    one = one && out[i] == 1;
  }
  if (one && n > 1) {
    // Only a size of 1 becomes a mean; a channels_last one is given its strides back, and the gradient a copy.
    Tensor y = op::mean(r, x, last, true);
    if (n == 2 && x->rank() == 4 && is_channels_last(*x) && !is_contiguous(*x))
      r.rebase(y, r.record({y}, {},
                           [](Run& r, Node&, TensorList& g) { return TensorList{r.empty(g[0]->sizes, g[0]->dtype)}; }));
    return {y};
  }
  Tensor y = output_like(r, x, sizes, x->dtype);
  record_pool(r, x, y, {}, true);
  return {y};
}

template <int n>
ValueList run_adaptive_max(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Dims out = a.dims_n(1, n), sizes = x->sizes;
  for (int i = 0; i < n; ++i) sizes[x->rank() - n + i] = out[i];
  Tensor y = output_like(r, x, sizes, x->dtype), indices = output_like(r, x, sizes, DType::int64);
  record_pool(r, x, y, indices, true);
  return {y, indices};
}

/// upsample_*: `output_size` or `scale_factors`; nothing saved.
ValueList run_upsample(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int n = x->rank() - 2;
  Dims sizes = x->sizes;
  std::size_t scales = a.size() - 1;
  if (!a.none(1)) {
    const Dims out = a.dims_n(1, n);
    for (int i = 0; i < n; ++i) sizes[2 + i] = out[i];
  } else {
    const Value& v = a[scales];
    if (!v.is_list() || v.list().size() != static_cast<std::size_t>(std::max(n, 0)))
      fail_input("an upsampling has neither size nor scale for each dimension");
    for (int i = 0; i < n; ++i)
      sizes[2 + i] =
          whole_number(std::floor(static_cast<double>(x->sizes[2 + i]) * to_double(v.list()[i], a.op())), a.op());
  }
  Tensor y = output_like(r, x, sizes, x->dtype);
  record_pool(r, x, y, {}, false);
  return {y};
}

ValueList run_shuffle(Run& r, Args& a) {
  // pixel_shuffle: view, permute, and one copy into the result.
  Tensor x = a.tensor(0);
  const std::int64_t f = a.integer(1);
  const bool up = a.op() == "aten::pixel_shuffle";
  const int rank = x->rank();
  if (rank < 3 || f <= 0)
    fail_input("a pixel shuffle wants three dimensions and a positive factor", std::string(a.op()));
  Dims sizes = x->sizes;
  const std::int64_t square = checked_mul(f, f);
  sizes[rank - 3] = up ? sizes[rank - 3] / square : checked_mul(sizes[rank - 3], square);
  for (int i = rank - 2; i < rank; ++i) sizes[i] = up ? checked_mul(sizes[i], f) : sizes[i] / f;
  Tensor y = r.empty(sizes, x->dtype);
  record_pool(r, x, y, {}, false);
  return {y};
}

}  // namespace

void register_pooling(OpTable& t) {
  const char* max_schema = "self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False";
  for (const char* n : {"aten::max_pool1d", "aten::max_pool1d_with_indices"})
    t.add(n, max_schema, run_max_pool<1>, Fidelity::modelled);
  for (const char* n : {"aten::max_pool2d", "aten::max_pool2d_with_indices"}) t.add(n, max_schema, run_max_pool<2>);
  for (const char* n : {"aten::max_pool3d", "aten::max_pool3d_with_indices"})
    t.add(n, max_schema, run_max_pool<3>, Fidelity::modelled);
  const char* avg_schema =
      "self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None";
  t.add("aten::avg_pool1d", avg_schema, run_avg_pool<1>, Fidelity::modelled);
  t.add("aten::avg_pool2d", avg_schema, run_avg_pool<2>);
  t.add("aten::avg_pool3d", avg_schema, run_avg_pool<3>, Fidelity::modelled);
  t.add("aten::adaptive_avg_pool1d", "self, output_size", run_adaptive_avg<1>, Fidelity::modelled);
  for (const char* n : {"aten::adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d"})
    t.add(n, "self, output_size", run_adaptive_avg<2>);
  for (const char* n : {"aten::adaptive_avg_pool3d", "aten::_adaptive_avg_pool3d"})
    t.add(n, "self, output_size", run_adaptive_avg<3>, Fidelity::modelled);
  t.add("aten::adaptive_max_pool1d", "self, output_size", run_adaptive_max<1>);
  t.add("aten::adaptive_max_pool2d", "self, output_size", run_adaptive_max<2>);
  t.add("aten::adaptive_max_pool3d", "self, output_size", run_adaptive_max<3>);
  for (const char* n : {"aten::upsample_nearest1d.vec", "aten::upsample_nearest2d.vec", "aten::upsample_nearest3d.vec",
                        "aten::_upsample_nearest_exact1d.vec", "aten::_upsample_nearest_exact2d.vec",
                        "aten::_upsample_nearest_exact3d.vec"})
    t.add(n, "input, output_size, scale_factors", run_upsample);
  for (const char* n :
       {"aten::upsample_bilinear2d.vec", "aten::upsample_bicubic2d.vec", "aten::upsample_linear1d.vec",
        "aten::upsample_trilinear3d.vec", "aten::_upsample_bilinear2d_aa.vec", "aten::_upsample_bicubic2d_aa.vec"})
    t.add(n, "input, output_size, align_corners, scale_factors", run_upsample);
  for (const char* n : {"aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_nearest3d"})
    t.add(n, "input, output_size, scales_h=None, scales_w=None", run_upsample);
  for (const char* n : {"aten::upsample_bilinear2d", "aten::upsample_bicubic2d", "aten::upsample_linear1d",
                        "aten::upsample_trilinear3d"})
    t.add(n, "input, output_size, align_corners, scales_h=None, scales_w=None", run_upsample);
  // Indices say where each element goes; the output is as large as asked for.
  t.add("aten::max_unpool2d", "self, indices, output_size", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    Dims sizes = x->sizes;
    const Dims out = a.dims_n(2, 2);
    for (int i = 0; i < 2; ++i) sizes[x->rank() - 2 + i] = out[i];
    Tensor y = r.empty(sizes, x->dtype);
    Node* node = r.record(
        {x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
    r.save(node, a.tensor(1));
    return {y};
  });
  for (const char* n : {"aten::pixel_shuffle", "aten::pixel_unshuffle"}) t.add(n, "self, factor", run_shuffle);
}

}  // namespace memplan
