// What other libraries do inside of a forward pass, as rows: strategies put them into a tape.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

// Linear layers on 4-bit weights, as bitsandbytes runs them (bitsandbytes/autograd/_functions.py: MatMul4Bit).

/// dequantize_4bit(...).to(dtype): the weight in the dtype of the activations, for the time of one product. With double
/// quantization the scales of all blocks of 64 weights are spread out to fp32 first.
Tensor dequantized(Run& r, std::int64_t out, std::int64_t in, DType dtype) {
  const std::int64_t blocks = (checked_mul(out, in) + 63) / 64;
  Tensor scales = r.empty({blocks}, DType::float32);
  Tensor weight = r.empty({out, in}, dtype);
  scales.reset();
  return weight;
}

ValueList run_linear_4bit(Run& r, Args& a) {
  const Tensor x = a.tensor(0), bias = a.optional_tensor(2);
  const std::int64_t out = a.integer(3), in = x->sizes.back();
  const bool keeps_input = a.boolean(4);
  Tensor y;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor weight = dequantized(r, out, in, x->dtype);
    y = op::linear(r, x, weight, bias);
  }
  // The node keeps the packed weight and, since 0.43.2, nothing of the activations. Before, `ctx.tensors = (A, B)` held
  // the input as long as the node lived, though nothing read it (pull request 1270).
  Node* node = r.record({x}, {y}, [out, in, held = keeps_input ? x : Tensor()](Run& r, Node& n, TensorList& g) {
    TensorList grads(1);
    if (!n.wants(0)) return grads;
    Tensor weight = dequantized(r, out, in, g[0]->dtype);
    grads[0] = op::matmul(r, g[0], weight);
    return grads;
  });
  r.save(node, a.tensor(1));
  return {y};
}

/// accelerate/utils/modeling.py: value.to(device), then clear_device_cache().
ValueList run_set_module_tensor(Run& r, Args& a) {
  const Tensor source = a.tensor(0);
  Tensor t = r.empty_strided(source->sizes, source->strides, source->dtype, Category::parameter);
  t->requires_grad_leaf = source->requires_grad_leaf;
  r.label(t, source->name);
  r.set_reason(t, "parameter, while its module runs");
  r.schedule.events.push_back({Event::Kind::empty_cache, -1});
  return {t};
}

}  // namespace

void register_quantized(OpTable& t) {
  t.add("bitsandbytes::linear_4bit", "input, weight, bias, out_features, keeps_input", run_linear_4bit,
        Fidelity::modelled);
  t.add("accelerate::set_module_tensor_to_device", "parameter", run_set_module_tensor);
}

}  // namespace memplan
