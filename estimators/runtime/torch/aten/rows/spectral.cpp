// Fourier transforms and complex views. cuFFT's own work area is not known without a device.
#include <algorithm>
#include <vector>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

DType complex_of(DType d) { return d == DType::float64 ? DType::complex128 : is_complex(d) ? d : DType::complex64; }
DType real_of(DType d) { return d == DType::complex128 ? DType::float64 : d == DType::complex64 ? DType::float32 : d; }

/// The transformed dimensions: `dim` where given, else the last one, two or all.
Dims transformed(const Tensor& x, const Value& dim, int count) {
  Dims dims;
  if (!dim.is_none())
    dims = dim.is_list() ? to_dims(dim, "a Fourier transform") : Dims{to_int(dim, "a Fourier transform")};
  else
    for (int i = count > 0 ? x->rank() - count : 0; i < x->rank(); ++i) dims.push_back(i);
  for (auto& d : dims) d = op::wrap_dim(d, x->rank());
  return dims;
}

/// _exec_fft (native/cuda/SpectralOps.cpp): the other dimensions, largest stride first, become one batch, which is a
/// copy where the strides do not allow it.
void execute_plan(Run& r, const Tensor& x, const Dims& dims) {
  ScopedValue<bool> no_grad(r.grad_mode, false);
  std::vector<int> order;
  for (int i = 0; i < x->rank(); ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x->strides[a] > x->strides[b]; });
  Dims permuted, collapsed{1};
  for (int d : order) {
    permuted.push_back(d);
    collapsed[0] = checked_mul(collapsed[0], x->sizes[d]);
  }
  for (auto d : dims) {
    permuted.push_back(d);
    collapsed.push_back(x->sizes[static_cast<int>(d)]);
  }
  Tensor batched = op::reshape(r, op::permute(r, x, permuted), collapsed);
}

/// cuFFT transforms at most so many dimensions at once.
constexpr int most_dims = 3;

/// _fft_c2c, below autograd: every three dimensions, from the last on, are one transform into a tensor of their own.
Tensor complex_transform(Run& r, const Tensor& given, const Dims& dims) {
  const Tensor x = given->conjugated ? r.empty_like(given) : given;  // ConjugateFallback.cpp
  Tensor from = x, to = r.empty(x->sizes, x->dtype), spare;
  for (int end = dims.size(); end > 0;) {
    const int begin = std::max(0, end - most_dims);
    Dims now;
    for (int i = begin; i < end; ++i) now.push_back(dims[i]);
    execute_plan(r, from, now);
    end = begin;
    if (end == 0) break;
    Tensor next = from.get() == x.get() ? r.empty(x->sizes, x->dtype) : from;
    from = to;
    to = next;
  }
  return to;
}

Dims half_of(Dims sizes, int last) {
  sizes[last] = sizes[last] / 2 + 1;
  return sizes;
}

/// _fft_r2c. It keeps its input, since its derivative asks for one size of it. Backward (fft_r2c_backward): a half
/// spectrum is padded to a whole one, transformed, and the real part of that is the gradient.
Tensor real_to_complex(Run& r, const Tensor& x, const Dims& dims, bool half) {
  Tensor y = r.empty(half ? half_of(x->sizes, static_cast<int>(dims.back())) : x->sizes, complex_of(x->dtype));
  execute_plan(r, x, dims);
  Node* node = r.record({x}, {y}, [from = x->sizes, dims, half](Run& r, Node&, TensorList& g) {
    Tensor whole = half && !(g[0]->sizes == from) ? r.empty(from, g[0]->dtype) : g[0];
    Tensor back = complex_transform(r, whole, dims);
    return TensorList{op::real_part(r, back)};
  });
  r.save(node, x);
  return y;
}

/// _fft_c2c.
Tensor complex_to_complex(Run& r, const Tensor& x, const Dims& dims) {
  Tensor y = complex_transform(r, x, dims);
  r.record({x}, {y}, [dims](Run& r, Node&, TensorList& g) { return TensorList{complex_transform(r, g[0], dims)}; });
  return y;
}

/// _fft_c2r: cuFFT overwrites its input, so it gets a copy. Backward (fft_c2r_backward): the half spectrum of the
/// gradient.
Tensor complex_to_real(Run& r, const Tensor& x, const Dims& dims, std::int64_t size) {
  Dims sizes = x->sizes;
  sizes[static_cast<int>(dims.back())] = size;
  Tensor y = r.empty(sizes, real_of(x->dtype));
  if (dims.size() <= most_dims) {
    Tensor copy = r.empty(x->sizes, x->dtype);
    execute_plan(r, copy, dims);
  } else {
    Dims first = dims;
    first.erase(first.size() - 1);
    Tensor copy = complex_transform(r, x, first);
  }
  r.record({x}, {y}, [dims, d = x->dtype](Run& r, Node&, TensorList& g) {
    Tensor back = r.empty(half_of(g[0]->sizes, static_cast<int>(dims.back())), d);
    execute_plan(r, g[0], dims);
    return TensorList{back};
  });
  return y;
}

/// x.to(complex): the gradient is the real part of the complex one.
Tensor promoted_to_complex(Run& r, const Tensor& x) {
  if (is_complex(x->dtype)) return x;
  Tensor y = r.empty_like(x, complex_of(x->dtype));
  r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{op::real_part(r, g[0])}; });
  return y;
}

/// resize_fft_input (native/SpectralOps.cpp): a longer dimension is cut, which is a view; a shorter one is padded.
Tensor resized(Run& r, Tensor x, const Dims& dims, const Dims& sizes) {
  ValueList pad(2 * static_cast<std::size_t>(x->rank()), Value(0));
  bool pads = false;
  for (int i = 0; i < dims.size(); ++i) {
    const int d = static_cast<int>(dims[i]);
    if (sizes[i] < 0 || x->sizes[d] == sizes[i]) continue;
    if (x->sizes[d] > sizes[i]) {
      x = op::slice(r, x, d, 0, sizes[i]);
      continue;
    }
    pads = true;
    pad[2 * static_cast<std::size_t>(x->rank() - 1 - d) + 1] = Value(sizes[i] - x->sizes[d]);
  }
  return pads ? call_op(r, "aten::constant_pad_nd", {x, Value(std::move(pad))})[0].tensor() : x;
}

/// The sizes that a call asks for, -1 where it takes the input's.
Dims asked_sizes(const Args& a, const Dims& dims) {
  if (a.none(1)) return Dims::filled(dims.size(), -1);
  return a[1].is_list() ? a.dims(1) : Dims{a.integer(1)};
}

/// With sizes but without dimensions, the last ones are meant.
Dims dims_of(const Tensor& x, const Args& a, int count) {
  if (a.none(2) && count == 0 && !a.none(1)) count = a.dims(1).size();
  return transformed(x, a[2], count);
}

ValueList run_to_half(Run& r, Args& a, int count) {
  Tensor x = a.tensor(0);
  if (is_integral(x->dtype) || x->dtype == DType::boolean) x = r.empty_like(x, DType::float32);
  const Dims dims = dims_of(x, a, count);
  return {real_to_complex(r, resized(r, x, dims, asked_sizes(a, dims)), dims, true)};
}

ValueList run_from_half(Run& r, Args& a, int count) {
  Tensor x = promoted_to_complex(r, a.tensor(0));
  const Dims dims = dims_of(x, a, count);
  Dims sizes = asked_sizes(a, dims);
  std::int64_t& last = sizes[sizes.size() - 1];
  const std::int64_t size = last < 0 ? 2 * (x->sizes[static_cast<int>(dims.back())] - 1) : last;
  last = size / 2 + 1;
  return {complex_to_real(r, resized(r, x, dims, sizes), dims, size)};
}

/// Of one dimension a real input is transformed as it is; of several it is made complex first.
ValueList run_complex(Run& r, Args& a) {
  const bool one = a.op() == "aten::fft_fft" || a.op() == "aten::fft_ifft";
  const bool two = a.op() == "aten::fft_fft2" || a.op() == "aten::fft_ifft2";
  Tensor x = one ? a.tensor(0) : promoted_to_complex(r, a.tensor(0));
  if (is_integral(x->dtype) || x->dtype == DType::boolean) x = r.empty_like(x, DType::float32);
  const Dims dims = dims_of(x, a, one ? 1 : two ? 2 : 0);
  x = resized(r, x, dims, asked_sizes(a, dims));
  if (is_complex(x->dtype)) return {complex_to_complex(r, x, dims)};
  // Backwards it is the conjugate of the transform forwards (fft_r2c).
  const Tensor y = real_to_complex(r, x, dims, false);
  return {a.op() == "aten::fft_ifft" ? op::conj(r, y) : y};
}

/// The same memory as pairs of numbers, or pairs as complex numbers.
Tensor as_pairs(Run& r, const Tensor& x) {
  Dims sizes = x->sizes, strides = x->strides;
  for (auto& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  Tensor y = r.alias(x, sizes, strides, x->offset * 2);
  y->dtype = real_of(x->dtype);
  return y;
}

Tensor as_complex(Run& r, const Tensor& x) {
  Dims sizes = x->sizes, strides = x->strides;
  if (sizes.empty() || sizes.back() != 2)
    fail_input("view_as_complex needs a last dimension of 2", "aten::view_as_complex");
  sizes.erase(sizes.size() - 1);
  strides.erase(strides.size() - 1);
  for (auto& s : strides) s /= 2;
  Tensor y = r.alias(x, sizes, strides, x->offset / 2);
  y->dtype = complex_of(x->dtype);
  return y;
}

/// ONNX has no complex tensors: pairs of numbers, along one more dimension, stand for them.
Tensor of_pairs(Run& r, const Tensor& x) {
  if (is_complex(x->dtype)) return x;
  Tensor y = as_complex(r, x);
  r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{as_pairs(r, g[0])}; });
  return y;
}

Tensor to_pairs(Run& r, const Tensor& x) {
  Tensor y = as_pairs(r, x);
  r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{as_complex(r, op::contiguous(r, g[0]))}; });
  return y;
}

/// _fft_c2c itself, as decomposed programs have it. So are the next two.
ValueList run_c2c(Run& r, Args& a) {
  const Tensor x = a.tensor(0);
  const bool pairs = !is_complex(x->dtype);
  const Tensor y = of_pairs(r, x);
  const Tensor made = complex_to_complex(r, y, transformed(y, a[1], 0));
  if (!pairs) return {made};
  return {to_pairs(r, made)};
}

ValueList run_r2c(Run& r, Args& a) {
  const Tensor x = a.tensor(0);
  return {real_to_complex(r, x, transformed(x, a[1], 0), a.none(3) || a.boolean(3))};
}

ValueList run_c2r(Run& r, Args& a) {
  const Tensor x = of_pairs(r, a.tensor(0));
  return {complex_to_real(r, x, transformed(x, a[1], 0), a.integer(3))};
}

/// torch.complex: a view of the gradient for each part. The parts are kept, since the formulas of their gradients,
/// at::real(grad) and at::imag(grad), have the names of the arguments in them (derivatives.yaml).
ValueList run_make_complex(Run& r, Args& a) {
  const Tensor x = a.tensor(0), y = a.tensor(1);
  Tensor z = op::pointwise(r, {x, y}, complex_of(x->dtype));
  Node* node = r.record({x, y}, {z}, [](Run& r, Node& n, TensorList& g) {
    TensorList parts(2);
    for (int i = 0; i < 2; ++i)
      if (n.wants(i)) parts[static_cast<std::size_t>(i)] = op::real_part(r, g[0]);
    return parts;
  });
  if (node && node->wants(1)) r.save(node, y);
  if (node && node->wants(0)) r.save(node, x);
  return {z};
}

}  // namespace

namespace op {
Tensor real_part(Run& r, const Tensor& x) {
  Dims strides = x->strides;
  for (auto& s : strides) s *= 2;
  Tensor y = r.alias(x, x->sizes, strides, x->offset * 2);
  y->dtype = real_of(x->dtype);
  return y;
}

Tensor conj(Run& r, const Tensor& x) {
  Tensor y = r.alias(x, x->sizes, x->strides, x->offset);
  y->conjugated = !x->conjugated;
  r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{conj(r, g[0])}; });
  return y;
}
}  // namespace op

void register_spectral(OpTable& t) {
  const char* schema = "self, n=None, dim=None, norm=None";
  auto modelled = Fidelity::modelled;
  t.add(
      "aten::fft_rfft", schema, [](Run& r, Args& a) { return run_to_half(r, a, 1); }, modelled);
  t.add(
      "aten::fft_rfft2", schema, [](Run& r, Args& a) { return run_to_half(r, a, 2); }, modelled);
  t.add(
      "aten::fft_rfftn", schema, [](Run& r, Args& a) { return run_to_half(r, a, 0); }, modelled);
  t.add(
      "aten::fft_irfft", schema, [](Run& r, Args& a) { return run_from_half(r, a, 1); }, modelled);
  t.add(
      "aten::fft_irfft2", schema, [](Run& r, Args& a) { return run_from_half(r, a, 2); }, modelled);
  t.add(
      "aten::fft_irfftn", schema, [](Run& r, Args& a) { return run_from_half(r, a, 0); }, modelled);
  for (const char* n :
       {"aten::fft_fft", "aten::fft_ifft", "aten::fft_fft2", "aten::fft_ifft2", "aten::fft_fftn", "aten::fft_ifftn"})
    t.add(n, schema, run_complex, modelled);
  t.add("aten::complex", "real, imag", run_make_complex);
  t.add("aten::_fft_c2c", "self, dim, normalization=0, forward=True", run_c2c, modelled);
  t.add("aten::_fft_r2c", "self, dim, normalization=0, onesided=True", run_r2c, modelled);
  t.add("aten::_fft_c2r", "self, dim, normalization, last_dim_size", run_c2r, modelled);
  // select of view_as_real: its gradient is written into zeros of the whole.
  for (const char* n : {"aten::real", "aten::imag"})
    t.add(n, "self", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      if (!is_complex(x->dtype)) return {x};
      Tensor y = op::real_part(r, x);
      y->offset += a.op() == "aten::imag";
      r.record({x}, {y}, [d = x->dtype](Run& r, Node&, TensorList& g) { return TensorList{r.empty(g[0]->sizes, d)}; });
      return {y};
    });
  for (const char* n : {"aten::_conj", "aten::conj"})
    t.add(n, "self", [](Run& r, Args& a) -> ValueList {
      const Tensor x = a.tensor(0);
      return {is_complex(x->dtype) ? op::conj(r, x) : x};
    });
  t.add("aten::view_as_real", "self", [](Run& r, Args& a) -> ValueList { return {to_pairs(r, a.tensor(0))}; });
  t.add("aten::view_as_complex", "self", [](Run& r, Args& a) -> ValueList { return {of_pairs(r, a.tensor(0))}; });
}

}  // namespace memplan
