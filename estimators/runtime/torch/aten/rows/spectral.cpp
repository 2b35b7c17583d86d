// Fourier transforms and complex views. cuFFT's own work area is not known without a device.
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

/// Real to half of a complex spectrum. Backward: the half is padded to a full one, transformed, and its real part
/// taken.
ValueList run_to_half(Run& r, Args& a, int count) {
  Tensor x = a.tensor(0);
  const Dims dims = transformed(x, a[2], count);
  Dims sizes = x->sizes;
  const int last = static_cast<int>(dims.back());
  sizes[last] = sizes[last] / 2 + 1;
  Tensor y = r.empty(sizes, complex_of(x->dtype));
  r.record({x}, {y}, [from = x->sizes, real = x->dtype](Run& r, Node&, TensorList& g) {
    Tensor padded = r.empty(from, g[0]->dtype);
    Tensor full = r.empty(from, g[0]->dtype);
    padded.reset();
    g[0].reset();  // the real part is taken by a node of its own
    return TensorList{r.empty(from, real)};
  });
  return {y};
}

/// Half of a spectrum to a real signal: the input is overwritten by cuFFT, so a clone of it is.
ValueList run_from_half(Run& r, Args& a, int count) {
  Tensor x = a.tensor(0);
  const Dims dims = transformed(x, a[2], count);
  Dims sizes = x->sizes;
  const int last = static_cast<int>(dims.back());
  sizes[last] = 2 * (sizes[last] - 1);
  if (!a.none(1)) sizes[last] = a[1].is_list() ? a.dims(1).back() : a.integer(1);
  Tensor y = r.empty(sizes, real_of(x->dtype));
  { Tensor copy = r.empty(x->sizes, x->dtype); }
  r.record({x}, {y},
           [from = x->sizes, d = x->dtype](Run& r, Node&, TensorList&) { return TensorList{r.empty(from, d)}; });
  return {y};
}

/// Complex to complex; of a real input also its gradient is made complex first.
ValueList run_complex(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool one = a.op() == "aten::fft_fft" || a.op() == "aten::fft_ifft";
  // Over several dimensions a real input is made complex first; one is transformed as it is.
  Tensor copy = one || is_complex(x->dtype) ? Tensor() : r.empty(x->sizes, complex_of(x->dtype));
  Tensor y = r.empty(x->sizes, complex_of(x->dtype));
  r.record({x}, {y}, [from = x->dtype](Run& r, Node&, TensorList& g) {
    Tensor grad = r.empty(g[0]->sizes, g[0]->dtype);
    if (is_complex(from)) return TensorList{grad};
    return TensorList{r.empty(g[0]->sizes, from)};
  });
  return {y};
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

}  // namespace

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
  t.add("aten::view_as_real", "self", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0), y = as_pairs(r, x);
    r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{as_complex(r, op::contiguous(r, g[0]))}; });
    return {y};
  });
  t.add("aten::view_as_complex", "self", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0), y = as_complex(r, x);
    r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{as_pairs(r, g[0])}; });
    return {y};
  });
}

}  // namespace memplan
