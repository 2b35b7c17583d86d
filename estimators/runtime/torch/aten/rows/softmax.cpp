// Softmax and dropout (native/SoftMax.cpp, native/Dropout.cpp, native/cuda/Dropout.cu of PyTorch 2.11).
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {
namespace op {

Tensor softmax_backward(Run& r, const Tensor& g, DType input) {
  // The result is made first, then grad * output as a temporary.
  Tensor out = r.empty_like(g, input);
  Tensor product = r.empty_like(g);
  return out;
}

namespace {
/// `dtype` on an fp16 input is fused into the kernel; on other types the input is converted first (SoftMax.cpp).
Tensor softmax_of(Run& r, const Tensor& given, std::optional<DType> dtype, bool log) {
  Tensor x = given;
  const bool fused = dtype && x->dtype == DType::float16 && *dtype == DType::float32;
  if (dtype && !fused) x = to(r, x, *dtype);
  Tensor y = r.empty(x->sizes, dtype.value_or(x->dtype));
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor dense = contiguous(r, x);
  }
  Node* node = r.record({x}, {y}, [input = x->dtype, log](Run& r, Node&, TensorList& g) {
    Tensor dense = contiguous(r, g[0]);
    if (log) return TensorList{r.empty_like(dense, input)};
    return TensorList{softmax_backward(r, dense, input)};
  });
  r.save_output(node, y);
  return y;
}
}  // namespace

Tensor softmax(Run& r, const Tensor& x, int, std::optional<DType> dtype) { return softmax_of(r, x, dtype, false); }
Tensor log_softmax(Run& r, const Tensor& x, int, std::optional<DType> dtype) { return softmax_of(r, x, dtype, true); }

Tensor dropout(Run& r, const Tensor& x, double p, bool train, Tensor* mask_out) {
  if (!train || p == 0 || x->numel() == 0) return x;
  if (p == 1 && !mask_out) return mul(r, x, r.empty({}, x->dtype));
  Tensor mask = r.empty_like(x, DType::boolean);
  Tensor y = r.empty_like(x);
  // The gradient is made in the memory format that the incoming one suggests: contiguous or channels_last.
  Node* node = r.record({x}, {y}, [](Run& r, Node&, TensorList& g) {
    const bool last = g[0]->rank() == 4 && is_channels_last(*g[0]);
    return TensorList{last ? r.empty_like(g[0]) : r.empty(g[0]->sizes, g[0]->dtype)};
  });
  r.save_output(node, mask);
  if (mask_out) *mask_out = mask;
  return y;
}

}  // namespace op

namespace {

std::optional<DType> dtype_at(const Args& a, std::size_t i) {
  return a.none(i) ? std::nullopt : std::optional(a.dtype_or(i, DType::float32));
}

/// feature_dropout draws for whole channels.
Tensor noise_of(Run& r, const Args& a, const Tensor& x) {
  Dims shape = x->sizes;
  if (a.op().find("feature") != std::string_view::npos)
    for (int i = 2; i < shape.size(); ++i) shape[i] = 1;
  return shape == x->sizes ? r.empty_like(x) : r.empty(shape, x->dtype);
}

/// The alpha kinds also shift what is dropped by a second tensor (native/Dropout.cpp, _dropout_impl).
Tensor shift_of(Run& r, const Args& a, const Tensor& noise) {
  return a.op().find("alpha") != std::string_view::npos ? r.empty_like(noise) : Tensor();
}

ValueList run_dropout_(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  if (!a.boolean(2) || a.number(1) == 0) return {x};
  // In place there is no fused kernel: noise of the full dtype, multiplied in; the noise is kept.
  Tensor noise = noise_of(r, a, x);
  const Tensor shift = shift_of(r, a, noise);
  Node* node = r.record({x}, {}, [](Run& r, Node&, TensorList& g) { return TensorList{r.empty_like(g[0])}; });
  r.save(node, noise);
  r.rebase(x, node);
  return {x};
}

ValueList run_noise_dropout(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  if (!a.boolean(2) || a.number(1) == 0) return {x};
  Tensor noise = noise_of(r, a, x);
  const Tensor shift = shift_of(r, a, noise);
  return {op::mul(r, x, noise)};
}

}  // namespace

void register_softmax(OpTable& t) {
  for (const char* n : {"aten::softmax.int", "aten::softmax"})
    t.add(n, "self, dim, dtype=None", [](Run& r, Args& a) -> ValueList {
      return {op::softmax(r, a.tensor(0), static_cast<int>(a.integer(1)), dtype_at(a, 2))};
    });
  t.add("aten::_softmax", "self, dim, half_to_float", [](Run& r, Args& a) -> ValueList {
    return {op::softmax(r, a.tensor(0), static_cast<int>(a.integer(1)),
                        a.boolean(2) ? std::optional(DType::float32) : std::nullopt)};
  });
  for (const char* n : {"aten::log_softmax.int", "aten::log_softmax"})
    t.add(n, "self, dim, dtype=None", [](Run& r, Args& a) -> ValueList {
      return {op::log_softmax(r, a.tensor(0), static_cast<int>(a.integer(1)), dtype_at(a, 2))};
    });
  t.add("aten::_log_softmax", "self, dim, half_to_float", [](Run& r, Args& a) -> ValueList {
    return {op::log_softmax(r, a.tensor(0), static_cast<int>(a.integer(1)),
                            a.boolean(2) ? std::optional(DType::float32) : std::nullopt)};
  });
  t.add("aten::dropout", "input, p, train",
        [](Run& r, Args& a) -> ValueList { return {op::dropout(r, a.tensor(0), a.number(1), a.boolean(2))}; });
  t.add("aten::native_dropout", "input, p, train", [](Run& r, Args& a) -> ValueList {
    Tensor mask;
    Tensor y = op::dropout(r, a.tensor(0), a.number(1), a.none(2) || a.boolean(2), &mask);
    if (!mask) mask = r.empty_like(y, DType::boolean);
    return {y, mask};
  });
  for (const char* n :
       {"aten::dropout_", "aten::feature_dropout_", "aten::alpha_dropout_", "aten::feature_alpha_dropout_"})
    t.add(n, "input, p, train", run_dropout_);
  for (const char* n : {"aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"})
    t.add(n, "input, p, train", run_noise_dropout);
}

}  // namespace memplan
