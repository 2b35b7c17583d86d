// Fourier transforms of windows that follow each other (native/SpectralOps.cpp).
#include <algorithm>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

/// A window that is shorter than the transform stands in the middle of zeros.
Tensor whole_window(Run& r, const Args& a, std::size_t at, std::int64_t size, std::int64_t length, DType dtype) {
  Tensor window = a.none(at) ? Tensor() : a.tensor(at);
  if (length == size) return window;
  Tensor zeros = r.empty({size}, window ? window->dtype : dtype);
  if (window) op::copy_(r, op::slice(r, zeros, 0, (size - length) / 2, (size - length) / 2 + length), window);
  return zeros;
}

ValueList run_stft(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool single = x->rank() == 1;
  if (single) x = op::unsqueeze(r, x, 0);
  const std::int64_t size = a.integer(1), hop = a.none(2) ? size / 4 : a.integer(2);
  if (x->rank() != 2 || size < 1 || hop < 1 || x->sizes[1] < size)
    fail_input("a window does not fit its signal", "aten::stft", "the model file does not fit these shapes");
  Tensor window = whole_window(r, a, 4, size, a.none(3) ? size : a.integer(3), x->dtype);
  const std::int64_t frames = 1 + (x->sizes[1] - size) / hop;
  const auto numbers = [](std::initializer_list<std::int64_t> n) { return Value(ValueList(n.begin(), n.end())); };
  Tensor parts =
      op::call(r, "aten::as_strided",
               {x, numbers({x->sizes[0], frames, size}), numbers({x->strides[0], hop * x->strides[1], x->strides[1]})});
  if (window) parts = op::mul(r, parts, window);
  const bool complex = is_complex(parts->dtype), half = a.none(6) ? !complex : a.boolean(6);
  Tensor y = op::transpose(r, op::call(r, half ? "aten::fft_rfft" : "aten::fft_fft", {parts}), 1, 2);
  if (single) y = op::squeeze(r, y, 0);
  return {!a.none(7) && a.boolean(7) ? y : op::call(r, "aten::view_as_real", {y})};
}

/// The windows are added where they lie, and what they add up to divides their sum.
ValueList run_istft(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool single = x->rank() == 2;
  if (single) x = op::unsqueeze(r, x, 0);
  const std::int64_t size = a.integer(1), hop = a.none(2) ? size / 4 : a.integer(2);
  if (x->rank() != 3 || size < 1 || hop < 1)
    fail_input("a spectrum of windows has three dimensions", "aten::istft", "the model file does not fit these shapes");
  const std::int64_t batch = x->sizes[0], frames = x->sizes[2];
  Tensor window = whole_window(r, a, 4, size, a.none(3) ? size : a.integer(3), DType::float32);
  if (!window) window = r.empty({size}, DType::float32);
  Tensor parts = op::call(r, "aten::fft_irfft", {op::transpose(r, x, 1, 2), size, -1});
  parts = op::mul(r, parts, window);
  const std::int64_t length = checked_mul(hop, frames - 1) + size, center = a.boolean(5) ? size / 2 : 0;
  Tensor sum = r.empty({batch, length}, parts->dtype);
  r.record({parts}, {sum},
           [](Run& r, Node& n, TensorList&) { return TensorList{r.empty(n.inputs[0].sizes, n.inputs[0].dtype)}; });
  parts = Tensor();
  Tensor envelope;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor squares = op::pointwise(r, {window}, window->dtype);
    envelope = r.empty({1, length}, squares->dtype);
  }
  const std::int64_t end = a.none(8) ? length - center : std::min(length, center + a.integer(8));
  Tensor y = op::div(r, op::slice(r, sum, 1, center, end), op::slice(r, envelope, 1, center, end));
  return {single ? op::squeeze(r, y, 0) : y};
}

}  // namespace

void register_short_time(OpTable& t) {
  t.add("aten::stft",
        "self, n_fft, hop_length=None, win_length=None, window=None, normalized=False, onesided=None, "
        "return_complex=None, align_to_window=None",
        run_stft, Fidelity::modelled);
  t.add("aten::istft",
        "self, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, "
        "length=None, return_complex=False",
        run_istft, Fidelity::modelled);
}

}  // namespace memplan
