// te.Linear of NVIDIA's Transformer Engine with delayed scaling (transformer_engine/pytorch/module/linear.py,
// csrc/quantizer.cpp). One tensor in 8 bits is its data and, where the device multiplies in one layout only (compute
// capability 8.9 and 9.0, "TN"), a transposed copy for each product that reads it the other way.
#include "estimators/runtime/torch/aten/fp8.h"

#include <fmt/format.h>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

constexpr DType byte = DType::float8_e4m3fn;
constexpr std::int64_t history = 1024;  // DelayedScaling.amax_history_len

/// nvte_is_non_tn_fp8_gemm_supported
bool needs_transposed(const Run& r) { return r.device.sm() < 100 || (r.device.sm() >= 120 && r.device.sm() < 130); }

/// Float8Quantizer: the scale's inverse beside the data.
struct Quantized {
  Tensor data, transposed, scale;
};

Quantized quantize(Run& r, const Dims& sizes, bool by_rows, bool by_columns) {
  Quantized q;
  q.scale = r.empty({1}, DType::float32);
  if (by_rows || !needs_transposed(r)) q.data = r.empty(sizes, byte);
  if (by_columns && needs_transposed(r)) q.transposed = r.empty(sizes, byte);
  return q;
}

Tensor kept(Run& r, Tensor t, const Tensor& weight, const char* what) {
  r.set_category(t, Category::buffer);
  if (weight && weight->name >= 0) r.label(t, r.schedule.names[static_cast<std::size_t>(weight->name)] + what);
  r.set_reason(t, "Transformer Engine's, from the first forward pass on");
  return t;
}

/// fp8_meta of the module and the cached copies of its weight (_fp8_workspaces, as with is_first_microbatch): input,
/// weight and output forward, gradients of output and input backward.
void prepare(Run& r, const Tensor& weight, bool transposed) {
  TensorList& own = r.kept_by_modules[weight.get()];
  if (own.empty()) {
    for (const std::int64_t tensors : {3, 2}) {
      own.push_back(kept(r, r.empty({tensors}, DType::float32), weight, ".fp8_scale"));
      own.push_back(kept(r, r.empty({history, tensors}, DType::float32), weight, ".amax_history"));
    }
    own.push_back(kept(r, r.empty({1}, DType::float32), weight, ".fp8_scale_inv"));
    if (weight->dtype != byte) own.push_back(kept(r, r.empty(weight->sizes, byte), weight, ".fp8"));
  }
  const std::size_t without = weight->dtype == byte ? 5 : 6;
  if (transposed && needs_transposed(r) && own.size() == without)
    own.push_back(kept(r, r.empty(weight->sizes, byte), weight, ".fp8_transposed"));
}

/// get_cublas_workspace: one for the process.
void take_workspace(Run& r) {
  TensorList& own = r.kept_by_modules[nullptr];
  if (!own.empty()) return;
  own.push_back(r.scratch(r.device.sm_major >= 9 ? Bytes::mib(32) + Bytes(1024) : Bytes::mib(4), Category::workspace));
  r.label(own.back(), "Transformer Engine's cuBLAS workspace");
}

void check(const Run& r, const Tensor& x) {
  if (r.device.sm() < 89)
    fail(ErrorKind::usage,
         fmt::format("{} has no units for 8 bits (compute capability {}.{}; 8.9 is needed)", r.device.key,
                     r.device.sm_major, r.device.sm_minor),
         setting(Field::precision, "fp8"),
         "use " + setting(Field::precision, "bf16") + ", or a card of the Ada, Hopper or Blackwell generation");
  const std::int64_t rows = x->numel() / std::max<std::int64_t>(1, x->sizes.back());
  if (rows % 8 != 0)
    fail(ErrorKind::usage,
         fmt::format("Transformer Engine multiplies multiples of 8 tokens in 8 bits; here are {}", rows),
         setting(Field::precision, "fp8"),
         "choose " + setting(Field::batch) + " and " + setting(Field::sequence) + " so that their product is one");
}

/// `gathered`: under Megatron-LM's sequence parallelism the ranks' parts of x are gathered in 8 bits, forward and again
/// backward; what is kept is this rank's part. 1 for other layers.
ValueList linear(Run& r, const Tensor& given, const Tensor& weight, const Tensor& bias, int dim,
                 std::int64_t gathered) {
  const Tensor x = op::contiguous(r, given);
  check(r, x);
  const DType dtype = x->dtype;
  const bool wants_x = r.needs_grad(x), wants_w = r.needs_grad(weight);
  Dims whole = x->sizes;
  whole[dim] = checked_mul(whole[dim], gathered);
  Dims out = whole;
  out[out.size() - 1] = weight->sizes[0];
  Quantized q;
  Tensor y;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    q = quantize(r, x->sizes, true, wants_w && gathered == 1);
    Tensor total = gathered > 1 ? r.empty(whole, byte) : Tensor();
    prepare(r, weight, wants_x);
    take_workspace(r);
    y = r.empty(out, dtype);
    // Only what the weight's gradient is made of is kept: the transposed copy where there is one.
    if (q.transposed) q.data.reset();
  }
  Node* node = r.record({x, weight, bias}, {y}, [whole, gathered, dtype](Run& r, Node& n, TensorList& g) {
    TensorList grads(3);
    const Tensor grad = op::contiguous(r, g[0]);
    if (n.wants(2)) grads[2] = r.empty(n.inputs[2].sizes, n.inputs[2].dtype);
    const Quantized narrow = quantize(r, grad->sizes, true, n.wants(1));
    Tensor total, turned;
    if (gathered > 1 && n.wants(1)) total = r.empty(whole, byte);
    if (n.wants(0)) {
      grads[0] = r.empty(whole, dtype);
      if (gathered > 1) {
        Tensor part = r.empty(n.inputs[0].sizes, dtype);
        if (total && needs_transposed(r)) turned = r.empty(whole, byte);
        if (n.wants(1)) grads[1] = r.empty(n.inputs[1].sizes, dtype);
        grads[0] = std::move(part);
        return grads;
      }
    }
    if (total && needs_transposed(r)) turned = r.empty(whole, byte);
    if (n.wants(1)) grads[1] = r.empty(n.inputs[1].sizes, dtype);
    return grads;
  });
  if (!node) return {y};
  // Gradients of weights in 8 bits are those of the products.
  node->inputs[1].dtype = dtype;
  if (wants_w) {
    r.save(node, q.transposed ? q.transposed : q.data);
    r.save(node, q.scale);
  }
  if (wants_x) r.save(node, weight);
  return {y};
}

}  // namespace

void register_fp8(OpTable& t) {
  t.add(
      "transformer_engine::linear", "input, weight, bias=None",
      [](Run& r, Args& a) -> ValueList { return linear(r, a.tensor(0), a.tensor(1), a.optional_tensor(2), 0, 1); },
      Fidelity::modelled);
  t.add(
      "transformer_engine::column_linear", "self, weight, bias, dim, ranks, transposed",
      [](Run& r, Args& a) -> ValueList {
        const std::int64_t dim = a.integer(3);
        return linear(r, a.tensor(0), a.tensor(1), a.optional_tensor(2),
                      static_cast<int>(dim < 0 ? dim + a.tensor(0)->rank() : dim), a.integer(4));
      },
      Fidelity::modelled);
}

}  // namespace memplan
