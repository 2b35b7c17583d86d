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

/// Records a pooling of images (native/cuda/*Pool*.cu), whose kernels want one format: after a result is made, the
/// output's gradient is copied where it is laid out otherwise, and so is the input if `reads_input`, forward and
/// backward.
void record_image_pool(Run& r, const Tensor& x, const Tensor& y, const Tensor& indices, bool reads_input) {
  const op::Format format = op::format_of(*x);
  if (reads_input) op::read_as(r, x, format);
  Node* node = r.record({x}, {y}, [format, reads_input, from = x->sizes](Run& r, Node& n, TensorList& g) {
    Tensor dx = op::empty_as(r, format, from, g[0]->dtype);
    const Tensor grad = op::read_as(r, g[0], format),
                 input = reads_input ? op::read_as(r, n.saved[0], format) : Tensor();
    return TensorList{dx};
  });
  r.save(node, x);
  if (indices) r.save_output(node, indices);
}

/// Records what reads its input with any strides and writes a contiguous gradient.
void record_strided_pool(Run& r, const Tensor& x, const Tensor& y, const Tensor& indices, bool save_input) {
  Node* node = r.record(
      {x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
  if (save_input) r.save(node, x);
  if (indices) r.save_output(node, indices);
}

/// Poolings of other ranks (DilatedMaxPool3d.cu, AveragePool3d.cu) copy an input that is not contiguous, forward alone.
void record_volume_pool(Run& r, const Tensor& x, const Tensor& y, const Tensor& indices) {
  op::read_as(r, x);
  record_strided_pool(r, x, y, indices, true);
}

struct Window {
  Dims size, stride, padding, dilation;
  bool ceil_mode = false;
};

/// One dimension's window as that of an image of one row.
Window of_row(const Window& w) {
  const auto pair = [](std::int64_t first, const Dims& second) {
    Dims both;
    both.push_back(first);
    both.push_back(second[0]);
    return both;
  };
  return {pair(1, w.size), pair(1, w.stride), pair(0, w.padding), pair(1, w.dilation), w.ceil_mode};
}

/// Poolings of one dimension are those of an image of one row, `x.unsqueeze(-2)` (native/Pooling.cpp, avg_pool1d and
/// its like): a row whose channels lie side by side, as a Linear leaves them, is read as it is.
Tensor to_row(Run& r, const Tensor& x) {
  if (x->rank() < 2) fail_input("a pooling wants channels and a length");
  return op::unsqueeze(r, x, x->rank() - 1);
}

Tensor from_row(Run& r, const Tensor& y) { return op::squeeze(r, y, y->rank() - 2); }

/// The maximum and where it was.
std::pair<Tensor, Tensor> max_pool(Run& r, const Tensor& x, const Window& w) {
  const Dims sizes = pooled_sizes(x, w.size, w.stride, w.padding, w.dilation, w.ceil_mode);
  Tensor y = op::empty_as(r, op::format_of(*x), sizes, x->dtype);
  Tensor indices = op::empty_as(r, op::format_of(*x), sizes, DType::int64);
  if (w.size.size() == 2)
    record_image_pool(r, x, y, indices, true);
  else
    record_volume_pool(r, x, y, indices);
  return {y, indices};
}

Dims stride_of(Args& a, const Dims& size, int n) {
  return a.none(2) || (a[2].is_list() && a[2].list().empty()) ? size : a.dims_n(2, n);
}

template <int n>
ValueList run_max_pool(Run& r, Args& a) {
  const Dims size = a.dims_n(1, n);
  const Window w{size, stride_of(a, size, n), a.dims_n(3, n), a.dims_n(4, n), a.boolean(5)};
  auto [y, indices] = n == 1 ? max_pool(r, to_row(r, a.tensor(0)), of_row(w)) : max_pool(r, a.tensor(0), w);
  if (n == 1) y = from_row(r, y);
  if (a.op().find("with_indices") == std::string_view::npos) return {y};
  return {y, n == 1 ? from_row(r, indices) : indices};
}

Tensor avg_pool(Run& r, const Tensor& x, const Window& w) {
  Tensor y = op::empty_as(r, op::format_of(*x), pooled_sizes(x, w.size, w.stride, w.padding, w.dilation, w.ceil_mode),
                          x->dtype);
  if (w.size.size() == 2)
    record_image_pool(r, x, y, {}, true);
  else
    record_volume_pool(r, x, y, {});
  return y;
}

template <int n>
ValueList run_avg_pool(Run& r, Args& a) {
  const Dims size = a.dims_n(1, n);
  const Window w{size, stride_of(a, size, n), a.dims_n(3, n), Dims::filled(n, 1), a.boolean(4)};
  if (n != 1) return {avg_pool(r, a.tensor(0), w)};
  return {from_row(r, avg_pool(r, to_row(r, a.tensor(0)), of_row(w)))};
}

/// `out`: a size for each of the last dimensions.
Tensor adaptive_avg(Run& r, const Tensor& x, const Dims& out) {
  const int n = out.size();
  Dims sizes = x->sizes, last;
  bool one = true;
  for (int i = 0; i < n; ++i) {
    last.push_back(x->rank() - n + i);
    sizes[x->rank() - n + i] = out[i];
    one = one && out[i] == 1;
  }
  if (one) {
    // Only a size of 1 becomes a mean; a channels_last one is given its strides back, and the gradient a copy.
    Tensor y = op::mean(r, x, last, true);
    if (n != 2 || op::format_of(*x) != op::Format::channels_last) return y;
    y->strides = channels_last_strides(y->sizes);
    if (!is_contiguous(*x))
      r.rebase(y, r.record({y}, {},
                           [](Run& r, Node&, TensorList& g) { return TensorList{r.empty(g[0]->sizes, g[0]->dtype)}; }));
    return y;
  }
  if (n != 2) {
    Tensor y = r.empty(sizes, x->dtype);
    record_strided_pool(r, x, y, {}, true);
    return y;
  }
  // AdaptiveAveragePooling.cu reads channels_last with its strides, and copies anything else before it makes the
  // result.
  const Tensor input = op::format_of(*x) == op::Format::channels_last ? x : op::read_as(r, x);
  Tensor y = op::empty_as(r, op::format_of(*x), sizes, x->dtype);
  record_image_pool(r, x, y, {}, false);
  return y;
}

/// A row of that length.
Dims row_of(const Dims& length) {
  Dims out = Dims::filled(1, 1);
  out.push_back(length[0]);
  return out;
}

template <int n>
ValueList run_adaptive_avg(Run& r, Args& a) {
  if (n != 1) return {adaptive_avg(r, a.tensor(0), a.dims_n(1, n))};
  return {from_row(r, adaptive_avg(r, to_row(r, a.tensor(0)), row_of(a.dims_n(1, 1))))};
}

/// AdaptiveMaxPooling2d.cu works in NCHW alone: whatever is laid out otherwise is copied, results included.
void record_adaptive_max(Run& r, const Tensor& x, const Tensor& y, const Tensor& indices) {
  { const Tensor values = op::read_as(r, y), places = op::read_as(r, indices), input = op::read_as(r, x); }
  Node* node = r.record({x}, {y}, [format = op::format_of(*x), from = x->sizes](Run& r, Node& n, TensorList& g) {
    Tensor dx = op::empty_as(r, format, from, g[0]->dtype);
    const Tensor grad = op::read_as(r, g[0]), places = op::read_as(r, n.saved[1]), written = op::read_as(r, dx);
    return TensorList{dx};
  });
  r.save(node, x);
  r.save_output(node, indices);
}

template <int n>
ValueList run_adaptive_max(Run& r, Args& a) {
  const Dims out = n == 1 ? row_of(a.dims_n(1, 1)) : a.dims_n(1, n);
  const Tensor x = n == 1 ? to_row(r, a.tensor(0)) : a.tensor(0);
  Dims sizes = x->sizes;
  for (int i = 0; i < out.size(); ++i) sizes[x->rank() - out.size() + i] = out[i];
  Tensor y = op::empty_as(r, op::format_of(*x), sizes, x->dtype),
         indices = op::empty_as(r, op::format_of(*x), sizes, DType::int64);
  if (n < 3)
    record_adaptive_max(r, x, y, indices);
  else
    record_strided_pool(r, x, y, indices, true);
  if (n == 1) return {from_row(r, y), from_row(r, indices)};
  return {y, indices};
}

/// UpSampleNearest2d.cu, UpSampleBilinear2d.cu (with antialiasing as well), UpSampleBicubic2d.cu: each copies other
/// tensors that are laid out otherwise than its kernel wants them.
void record_image_upsample(Run& r, const Tensor& x, const Tensor& y, std::string_view name) {
  const auto has = [&](const char* word) { return name.find(word) != std::string_view::npos; };
  const bool smooth = has("_aa"), cubic = has("bicubic") && !smooth;
  const op::Format format = op::format_of(*x), dense = op::Format::contiguous;
  // An image that is that large already is copied as it lies.
  const bool as_large = x->sizes == y->sizes && !cubic && !smooth;
  if (smooth) {
    const Tensor written = op::read_as(r, y, dense), input = op::read_as(r, x, dense);
  } else if (!as_large && (has("nearest") || (format == op::Format::channels_last && !cubic))) {
    op::read_as(r, x, format);
  }
  r.record({x}, {y}, [=, from = x->sizes](Run& r, Node&, TensorList& g) {
    // The gradient says how what it makes is laid out (upsample_bilinear2d_backward's meta function).
    Tensor dx = op::empty_as(r, cubic ? dense : smooth ? format : op::format_of(*g[0]), from, g[0]->dtype);
    // A slice of what cat's gradient is, for one, is laid out neither way.
    const Tensor grad = as_large ? g[0] : op::read_as(r, g[0], cubic || smooth ? dense : op::format_of(*g[0]));
    return TensorList{dx};
  });
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
  Tensor y = op::empty_as(r, op::format_of(*x), sizes, x->dtype);
  if (n == 2) {
    record_image_upsample(r, x, y, a.op());
  } else if (a.op().find("nearest") != std::string_view::npos) {
    // UpSampleNearest1d.cu and UpSampleNearest3d.cu copy a gradient that is not contiguous, behind the result's memory.
    r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) {
      Tensor grad = r.empty(from, g[0]->dtype);
      op::read_as(r, g[0]);
      return TensorList{grad};
    });
  } else {
    record_strided_pool(r, x, y, {}, false);
  }
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
  record_strided_pool(r, x, y, {}, false);
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
