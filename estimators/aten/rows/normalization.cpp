// Batch, layer, group and RMS norm on CUDA (native/Normalization.cpp, native/cudnn/BatchNorm.cpp,
// native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu of PyTorch 2.11).
#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {

namespace {

bool is_half(DType d) { return d == DType::float16 || d == DType::bfloat16; }

/// _select_batch_norm_backend: cuDNN for at least 3-D inputs that are not bf16, with both affine parameters.
bool cudnn_takes(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& mean, bool training) {
  return x->dtype != DType::bfloat16 && w && b && w->dtype != DType::bfloat16 && (x->dtype != DType::float16 || w->dtype == DType::float32) &&
         x->rank() >= 3 && (training || mean) && x->sizes[0] <= (training ? 880801 : 65535) && x->numel() < (std::int64_t{1} << 31);
}

/// Statistics in the accumulate type: fp32 for half inputs.
DType stats_dtype(DType d) { return is_half(d) ? DType::float32 : d; }

ValueList batch_norm(Run& r, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& mean, const Tensor& var, bool training) {
  const std::int64_t c = x->size(1);
  const bool cudnn = cudnn_takes(x, w, b, mean, training);
  // cuDNN in evaluation has no statistics of its own; the native kernel makes them in both modes.
  const bool save = training || !cudnn;
  Tensor y = r.empty_like(x);
  const DType stats = cudnn ? w->dtype : stats_dtype(x->dtype);
  Tensor m = save ? r.empty({c}, stats) : Tensor();
  Tensor s = save ? r.empty({c}, stats) : Tensor();
  Node* node = r.record({x, w, b}, {y}, [c, cudnn, w_dtype = w ? w->dtype : DType::float32](Run& r, Node& n, TensorList& g) {
    TensorList out(3);
    const Tensor& x = n.saved[0];
    // The native kernel for 2-D inputs and channels_last reduces first, then computes the elements.
    const bool reduce_first = !cudnn && x->rank() == 2;
    Tensor grad = op::contiguous(r, g[0], is_channels_last(*x) && !is_contiguous(*x) ? op::Format::channels_last : op::Format::contiguous);
    if (reduce_first) {
      Tensor sum_dy = r.empty({c}, stats_dtype(x->dtype)), sum_dy_xmu = r.empty({c}, stats_dtype(x->dtype));
      if (n.wants(1)) out[1] = r.empty({c}, w_dtype);
      if (n.wants(2)) out[2] = r.empty({c}, w_dtype);
      out[0] = r.empty_like(x);
      sum_dy_xmu.reset();
      return out;
    }
    out[0] = r.empty_like(x);
    if (n.wants(1) || cudnn) out[1] = r.empty({c}, w_dtype);
    if (n.wants(2) || cudnn) out[2] = r.empty({c}, w_dtype);
    return out;
  });
  r.save(node, x);
  r.save(node, w);
  r.save(node, mean);
  r.save(node, var);
  if (m) r.save_output(node, m);
  if (s) r.save_output(node, s);
  return {y, m ? Value(m) : Value(), s ? Value(s) : Value()};
}

ValueList run_batch_norm(Run& r, Args& a) {
  return {batch_norm(r, a.tensor(0), a.optional_tensor(1), a.optional_tensor(2), a.optional_tensor(3), a.optional_tensor(4), a.boolean(5))[0]};
}

ValueList run_native_batch_norm(Run& r, Args& a) {
  return batch_norm(r, a.tensor(0), a.optional_tensor(1), a.optional_tensor(2), a.optional_tensor(3), a.optional_tensor(4), a.boolean(5));
}

ValueList run_batch_norm_no_training(Run& r, Args& a) {
  return batch_norm(r, a.tensor(0), a.optional_tensor(1), a.optional_tensor(2), a.optional_tensor(3), a.optional_tensor(4), false);
}

ValueList layer_norm(Run& r, const Tensor& given, const Dims& shape, const Tensor& w, const Tensor& b) {
  std::int64_t rows = 1;
  for (int i = 0; i < given->rank() - shape.size(); ++i) rows = checked_mul(rows, given->sizes[i]);
  const std::int64_t width = shape.product();
  const Tensor& x = given;
  Tensor y, mean, rstd;
  {
    Restore<bool> no_grad(r.grad_mode, false);
    Tensor dense = op::contiguous(r, given);
    y = r.empty(given->sizes, given->dtype);
    mean = r.empty({rows}, stats_dtype(given->dtype));
    rstd = r.empty({rows}, stats_dtype(given->dtype));
  }
  Node* node = r.record({x, w, b}, {y}, [rows, width, shape](Run& r, Node& n, TensorList& g) {
    TensorList out(3);
    const Tensor& x = n.saved[0];
    Tensor dense = op::contiguous(r, x);
    // saved: x, weight?, bias?, mean, rstd
    if (n.wants(0)) out[0] = r.empty(x->sizes, x->dtype);
    const DType wd = n.wants(1) ? n.inputs[1].dtype : x->dtype;
    if (n.wants(1)) out[1] = r.empty(shape, wd);
    if (n.wants(2)) out[2] = r.empty(shape, wd);
    Tensor grad = op::contiguous(r, g[0]);
    if ((n.wants(1) || n.wants(2)) && rows > 64 * 1024 && width / 32 < r.device.multiprocessors / 2) {
      // LaunchGammaBetaBackwardCUDAKernel: partial sums per block of 32 rows, then a sum over the blocks.
      const std::int64_t partial = (rows + 31) / 32;
      Tensor pg = r.empty({partial, width}, wd), pb = r.empty({partial, width}, wd);
      for (int i = 1; i <= 2; ++i) out[i] = op::sum(r, i == 1 ? pg : pb, {0}, false);
    }
    return out;
  });
  r.save(node, x);
  r.save(node, w);
  r.save(node, b);
  r.save_output(node, mean);
  r.save_output(node, rstd);
  return {y, mean, rstd};
}

ValueList run_layer_norm(Run& r, Args& a) {
  return {layer_norm(r, a.tensor(0), a.dims(1), a.optional_tensor(2), a.optional_tensor(3))[0]};
}
ValueList run_native_layer_norm(Run& r, Args& a) {
  return layer_norm(r, a.tensor(0), a.dims(1), a.optional_tensor(2), a.optional_tensor(3));
}

/// _fused_rms_norm: the weight must have the input's dtype, else PyTorch runs the composite chain.
ValueList run_rms_norm(Run& r, Args& a) {
  Tensor x = a.tensor(0), w = a.optional_tensor(2);
  const Dims shape = a.dims(1);
  std::int64_t rows = x->numel() / std::max<std::int64_t>(shape.product(), 1);
  Tensor y, rstd;
  {
    Restore<bool> no_grad(r.grad_mode, false);
    Tensor dense = op::contiguous(r, x);
    y = r.empty(x->sizes, x->dtype);
    rstd = r.empty({rows}, stats_dtype(x->dtype));
  }
  Node* node = r.record({x, w}, {y}, [shape](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    const Tensor& x = n.saved[0];
    Tensor grad = op::contiguous(r, g[0]);
    if (n.wants(0)) out[0] = r.empty(x->sizes, x->dtype);
    if (n.wants(1)) out[1] = r.empty(shape, n.inputs[1].dtype);
    return out;
  });
  r.save(node, x);
  r.save(node, w);
  r.save_output(node, rstd);
  return {y};
}

ValueList run_group_norm(Run& r, Args& a) {
  Tensor given = a.tensor(0), w = a.optional_tensor(2), b = a.optional_tensor(3);
  const std::int64_t groups = a.integer(1), n = given->sizes[0], c = given->sizes[1];
  Tensor x = op::contiguous(r, given);
  Tensor y = r.empty(x->sizes, x->dtype);
  const DType sd = x->dtype;
  Tensor mean = r.empty({n, groups}, sd), rstd = r.empty({n, groups}, sd);
  {
    Tensor scale = r.empty({n, c}, stats_dtype(x->dtype));
    Tensor shift = r.empty({n, c}, stats_dtype(x->dtype));
  }
  Node* node = r.record({x, w, b}, {y}, [n, c, groups](Run& r, Node& node, TensorList& g) {
    TensorList out(3);
    const Tensor& x = node.saved[0];
    const DType acc = stats_dtype(x->dtype);
    Tensor grad = op::contiguous(r, g[0]);
    if (node.wants(0)) out[0] = r.empty(x->sizes, x->dtype);
    if (node.wants(1)) out[1] = r.empty({c}, node.inputs[1].dtype);
    if (node.wants(2)) out[2] = r.empty({c}, node.inputs[2].dtype);
    Tensor ds = r.empty({n, c}, acc), db = r.empty({n, c}, acc);
    if (node.wants(0)) {
      Tensor c1;  // declared first, so given back last
      Tensor c2 = r.empty({n, groups}, acc), c3 = r.empty({n, groups}, acc);
      c1 = r.empty({n, c}, acc);
    }
    return out;
  });
  r.save(node, x);
  r.save(node, w);
  r.save_output(node, mean);
  r.save_output(node, rstd);
  return {y};
}

}  // namespace

void register_normalization(Registry& t) {
  t.add("aten::batch_norm", "input, weight, bias, running_mean, running_var, training, momentum=0.1, eps=1e-5, cudnn_enabled=True", run_batch_norm);
  for (const char* n : {"aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional", "aten::cudnn_batch_norm"})
    t.add(n, "input, weight, bias, running_mean, running_var, training, momentum=0.1, eps=1e-5", run_native_batch_norm);
  for (const char* n : {"aten::_native_batch_norm_legit_no_training"})
    t.add(n, "input, weight, bias, running_mean, running_var, momentum=0.1, eps=1e-5", run_batch_norm_no_training);
  t.add("aten::layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True", run_layer_norm);
  t.add("aten::native_layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-5", run_native_layer_norm);
  t.add("aten::group_norm", "input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True", run_group_norm);
  for (const char* n : {"aten::rms_norm", "aten::_fused_rms_norm"}) t.add(n, "input, normalized_shape, weight=None, eps=None", run_rms_norm);
}

}  // namespace memplan
