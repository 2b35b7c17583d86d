// Batch, layer, group and RMS norm on CUDA (native/Normalization.cpp, native/cudnn/BatchNorm.cpp,
// native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu of PyTorch 2.11).
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

bool is_half(DType d) { return d == DType::float16 || d == DType::bfloat16; }

/// _select_batch_norm_backend: cuDNN for at least 3-D inputs that are not bf16, with both affine parameters.
bool cudnn_takes(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& mean, bool training) {
  return x->dtype != DType::bfloat16 && w && b && w->dtype != DType::bfloat16 &&
         (x->dtype != DType::float16 || w->dtype == DType::float32) && x->rank() >= 3 && (training || mean) &&
         x->sizes[0] <= (training ? 880801 : 65535) && x->numel() < (std::int64_t{1} << 31);
}

/// Statistics in the accumulate type: fp32 for half inputs.
DType stats_dtype(DType d) { return is_half(d) ? DType::float32 : d; }

/// Rows of blocks that a channels_last kernel splits its reduction over (flexible_launch_configs): none below 8.
std::int64_t staging_rows(const Tensor& x, std::int64_t c) {
  auto power = [](std::int64_t v) {
    std::int64_t p = 1;
    while (p * 2 <= v) p *= 2;
    return p;
  };
  const std::int64_t count = x->numel() / c, width = std::min<std::int64_t>(power(c), 32);
  const std::int64_t height = std::min<std::int64_t>(power((count + 15) / 16), 512 / width);
  const std::int64_t rows = std::min<std::int64_t>((count + height * 16 - 1) / (height * 16), 128);
  return rows >= 8 ? rows : 0;
}

/// The rows' partial results, `values` of each channel, and a semaphore per column of blocks.
void stage(Run& r, const Tensor& x, std::int64_t c, int values) {
  const std::int64_t rows = staging_rows(x, c);
  if (rows == 0) return;
  std::int64_t width = 1;
  while (width * 2 <= c && width < 32) width *= 2;
  Tensor staging = r.empty({values * c * rows}, stats_dtype(x->dtype)),
         semaphores = r.empty({(c + width - 1) / width}, DType::int32);
  semaphores.reset();
}

/// batch_norm_backward_cuda for channels_last: sums first, then the elements. In evaluation cuDNN's forward has left
/// no statistics, so 1 / std is made again, and the gradient comes out contiguous.
void backward_channels_last(Run& r, Node& n, const Tensor& x, std::int64_t c, bool training, bool saved_stats,
                            TensorList& out) {
  const DType acc = stats_dtype(x->dtype);
  Tensor invstd = saved_stats ? Tensor() : r.empty({c}, acc);
  Tensor sum_dy = r.empty({c}, acc), sum_dy_xmu = r.empty({c}, acc);
  if (n.wants(1)) out[1] = r.empty({c}, n.inputs[1].dtype);
  if (n.wants(2)) out[2] = r.empty({c}, n.inputs[2].dtype);
  stage(r, x, c, 2);
  out[0] = training ? r.empty_like(x) : r.empty(x->sizes, x->dtype);
  sum_dy_xmu.reset();
  sum_dy.reset();
  invstd.reset();
}

op::Format format_of_gradient(const Tensor& x) {
  return is_channels_last(*x) && !is_contiguous(*x) ? op::Format::channels_last : op::Format::contiguous;
}

bool channels_last(const Tensor& x) { return x->rank() == 4 && is_channels_last(*x) && !is_contiguous(*x); }

/// Impl::General of Normalization.cu, for inputs that lie neither way, as turned ones do: var_mean_out converts bf16 to
/// fp32 (make_reduction; fp16 it reads as it is), and numbers stand in for weights that are not there.
void general_statistics(Run& r, const Tensor& x, const Tensor& w, const Tensor& b, bool training) {
  if (training && x->dtype == DType::bfloat16) Tensor wide = r.empty(x->sizes, DType::float32);
  Tensor one = w ? Tensor() : r.empty({}, stats_dtype(x->dtype)),
         zero = b ? Tensor() : r.empty({}, stats_dtype(x->dtype));
}

ValueList batch_norm(Run& r, const Tensor& input, const Tensor& w, const Tensor& b, const Tensor& mean,
                     const Tensor& var, bool training) {
  const std::int64_t c = input->size(1);
  const bool cudnn = cudnn_takes(input, w, b, mean, training);
  // _batch_norm_impl_index: cuDNN gets input.contiguous(input.suggest_memory_format()).
  const Tensor x = cudnn && !is_contiguous(*input) ? op::contiguous(r, input, op::format_of(*input)) : input;
  // cuDNN in evaluation has no statistics of its own; the native kernel makes them in both modes.
  const bool save = training || !cudnn;
  Tensor y = r.empty_like(x);
  const DType stats = cudnn ? w->dtype : stats_dtype(x->dtype);
  Tensor m = save ? r.empty({c}, stats) : Tensor();
  Tensor s = save ? r.empty({c}, stats) : Tensor();
  if (training && !cudnn && channels_last(x)) stage(r, x, c, 4);
  if (!cudnn && !is_contiguous(*x) && !is_channels_last(*x)) general_statistics(r, x, w, b, training);
  Node* node = r.record(
      {x, w, b}, {y},
      [c, cudnn, training, save, w_dtype = w ? w->dtype : DType::float32](Run& r, Node& n, TensorList& g) {
        TensorList out(3);
        const Tensor& x = n.saved[0];
        const DType acc = stats_dtype(x->dtype);
        if (!training && !n.wants(1) && !n.wants(2)) {
          // batch_norm_elementwise_backward_eval
          Tensor grad = op::contiguous(r, g[0], format_of_gradient(x));
          Tensor invstd = save ? Tensor() : r.empty({c}, acc);
          out[0] = r.empty_like(x);
          return out;
        }
        if ((!training || !cudnn) && channels_last(x)) {
          Tensor grad = op::contiguous(r, g[0], op::Format::channels_last);
          backward_channels_last(r, n, x, c, training, save, out);
          return out;
        }
        // The native kernel for 2-D inputs and channels_last reduces first, then computes the elements.
        const bool reduce_first = !cudnn && x->rank() == 2;
        // batch_norm_backward_cuda_template reads any strides of three dimensions, and gives a contiguous gradient.
        const bool fused = !cudnn && x->rank() == 3;
        Tensor grad = fused ? g[0] : op::contiguous(r, g[0], format_of_gradient(x));
        if (reduce_first) {
          Tensor sum_dy = r.empty({c}, stats_dtype(x->dtype)), sum_dy_xmu = r.empty({c}, stats_dtype(x->dtype));
          if (n.wants(1)) out[1] = r.empty({c}, w_dtype);
          if (n.wants(2)) out[2] = r.empty({c}, w_dtype);
          if (n.wants(0)) out[0] = r.empty_like(x);
          sum_dy_xmu.reset();
          return out;
        }
        if (n.wants(0) || cudnn) out[0] = fused ? r.empty(x->sizes, x->dtype) : r.empty_like(x);
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
  return {batch_norm(r, a.tensor(0), a.optional_tensor(1), a.optional_tensor(2), a.optional_tensor(3),
                     a.optional_tensor(4), a.boolean(5))[0]};
}

ValueList run_native_batch_norm(Run& r, Args& a) {
  return batch_norm(r, a.tensor(0), a.optional_tensor(1), a.optional_tensor(2), a.optional_tensor(3),
                    a.optional_tensor(4), a.boolean(5));
}

ValueList run_batch_norm_no_training(Run& r, Args& a) {
  return batch_norm(r, a.tensor(0), a.optional_tensor(1), a.optional_tensor(2), a.optional_tensor(3),
                    a.optional_tensor(4), false);
}

ValueList layer_norm(Run& r, const Tensor& given, const Dims& shape, const Tensor& w, const Tensor& b) {
  std::int64_t rows = 1;
  for (int i = 0; i < given->rank() - shape.size(); ++i) rows = checked_mul(rows, given->sizes[i]);
  const std::int64_t width = shape.product();
  const Tensor& x = given;
  Tensor y, mean, rstd;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
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

/// The chain of plain ops, in fp32 for half types.
Tensor composite_rms_norm(Run& r, const Tensor& x, const Dims& shape, const Tensor& w) {
  Dims dims;
  for (int i = x->rank() - shape.size(); i < x->rank(); ++i) dims.push_back(i);
  auto call = [&](const char* name, ValueList args) { return call_op(r, name, std::move(args))[0].tensor(); };
  Tensor wide = is_half(x->dtype) ? op::to(r, x, DType::float32) : x;
  Tensor scale;
  {
    Tensor squares = call("aten::pow.Tensor_Scalar", {wide, 2});
    Tensor average = op::mean(r, squares, dims, true);
    average = call("aten::add_.Scalar", {average, 1e-5});
    scale = call("aten::rsqrt", {average});
    average.reset();
  }
  Tensor y = op::mul(r, wide, scale);
  Tensor weighted = w ? op::mul(r, y, w) : y;
  y.reset();
  return op::to(r, weighted, x->dtype);
}

/// _fused_rms_norm: the weight must have the input's dtype, else PyTorch runs the composite chain.
ValueList run_rms_norm(Run& r, Args& a) {
  Tensor x = a.tensor(0), w = a.optional_tensor(2);
  const Dims shape = a.dims(1);
  if (!r.profile.kernels.fused_rms_norm || (w && w->dtype != x->dtype)) return {composite_rms_norm(r, x, shape, w)};
  std::int64_t rows = x->numel() / std::max<std::int64_t>(shape.product(), 1);
  Tensor y, rstd;
  {
    const Tensor dense = op::read_as(r, x);
    y = r.empty(x->sizes, x->dtype);
    rstd = r.empty({rows}, stats_dtype(x->dtype));
  }
  Node* node = r.record({x, w}, {y}, [shape](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    const Tensor& x = n.saved[0];
    const Tensor grad = op::contiguous(r, g[0]), dense = op::read_as(r, x);
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
  const KernelRules& rules = r.profile.kernels;
  const bool kept = rules.group_norm_keeps_channels_last && given->rank() == 4 &&
                    given->strides == channels_last_strides(given->sizes);
  const bool saves_given = rules.group_norm_saves_given;
  Tensor x = saves_given ? given : op::contiguous(r, given);
  const auto like_input = [kept](Run& r, const Tensor& x) {
    return kept ? r.empty_strided(x->sizes, x->strides, x->dtype) : r.empty(x->sizes, x->dtype);
  };
  Tensor y = like_input(r, x);
  const DType sd = x->dtype, wide = stats_dtype(x->dtype);
  Tensor mean = r.empty({n, groups}, sd), rstd = r.empty({n, groups}, sd);
  Tensor dense = saves_given && !kept ? op::contiguous(r, given) : Tensor();
  Tensor wide_mean, wide_rstd;
  if (rules.group_norm_wide_statistics && wide != sd)
    wide_mean = r.empty({n, groups}, wide), wide_rstd = r.empty({n, groups}, wide);
  if (w || b) {
    Tensor scale = r.empty({n, c}, stats_dtype(x->dtype));
    Tensor shift = r.empty({n, c}, stats_dtype(x->dtype));
  }
  wide_rstd.reset();
  wide_mean.reset();
  dense.reset();
  Node* node = r.record({x, w, b}, {y}, [n, c, groups, kept, like_input](Run& r, Node& node, TensorList& g) {
    TensorList out(3);
    const Tensor& x = node.saved[0];
    const DType acc = stats_dtype(x->dtype);
    Tensor grad = op::contiguous(r, g[0], kept ? op::Format::channels_last : op::Format::contiguous);
    Tensor dense = kept ? x : op::contiguous(r, x);
    if (node.wants(0)) out[0] = like_input(r, x);
    if (node.wants(1)) out[1] = r.empty({c}, node.inputs[1].dtype);
    if (node.wants(2)) out[2] = r.empty({c}, node.inputs[2].dtype);
    Tensor ds = r.empty({n, c}, acc), db = r.empty({n, c}, acc);
    if (node.wants(0)) {
      Tensor c1;  // declared first, so given back last
      Tensor c2 = r.empty({n, groups}, acc), c3 = r.empty({n, groups}, acc);
      if (!kept && node.inputs[1].sizes.size() > 0) c1 = r.empty({n, c}, acc);
    }
    return out;
  });
  r.save(node, x);
  r.save(node, w);
  r.save_output(node, mean);
  r.save_output(node, rstd);
  return {y};
}

/// Every channel of every image is normalized by itself: a batch norm of one image with all channels.
ValueList run_instance_norm(Run& r, Args& a) {
  Tensor x = op::contiguous(r, a.tensor(0)), w = a.optional_tensor(1), b = a.optional_tensor(2);
  const std::int64_t n = x->sizes[0], c = x->sizes[1];
  auto repeated = [&](const Tensor& t) {
    if (!t) return t;
    return call_op(r, "aten::repeat", {t, Value(ValueList{Value(n)})})[0].tensor();
  };
  Tensor weights = repeated(w), biases = repeated(b);
  Dims sizes = x->sizes;
  sizes[0] = 1;
  sizes[1] = checked_mul(n, c);
  Tensor flat = op::reshape(r, x, sizes);
  Tensor y = batch_norm(r, flat, weights, biases, {}, {}, true)[0].tensor();
  flat.reset();
  return {op::view(r, y, x->sizes)};
}

/// _weight_norm (native/WeightNorm.cpp): one kernel where the kept dimension is the first or the last, which also gives
/// the norms. Its backward makes both gradients at once.
ValueList run_weight_norm(Run& r, Args& a) {
  Tensor v = op::contiguous(r, a.tensor(0)), g = op::contiguous(r, a.tensor(1));
  const std::int64_t dim = a.integer(2);
  if (dim != 0 && dim != v->rank() - 1) {
    Dims others;
    for (int i = 0; i < v->rank(); ++i)
      if (i != op::wrap_dim(dim, v->rank())) others.push_back(i);
    ValueList dims;
    for (auto d : others) dims.emplace_back(d);
    Tensor norm = call_op(r, "aten::linalg_vector_norm", {v, 2.0, Value(std::move(dims)), true, Value()})[0].tensor();
    return {op::mul(r, v, op::div(r, g, norm))};
  }
  Tensor w = r.empty(v->sizes, v->dtype), norms = r.empty(g->sizes, stats_dtype(v->dtype));
  Node* node = r.record({v, g}, {w}, [](Run& r, Node& n, TensorList& grads) {
    Tensor grad = op::contiguous(r, grads[0]);
    TensorList out(2);
    for (int i = 0; i < 2; ++i) out[i] = r.empty(n.inputs[i].sizes, n.inputs[i].dtype);
    return out;
  });
  r.save(node, g);
  r.save(node, v);
  r.save_output(node, norms);
  return {w};
}

}  // namespace

void register_normalization(OpTable& t) {
  t.add("aten::batch_norm",
        "input, weight, bias, running_mean, running_var, training, momentum=0.1, eps=1e-5, cudnn_enabled=True",
        run_batch_norm);
  for (const char* n : {"aten::native_batch_norm", "aten::_native_batch_norm_legit",
                        "aten::_native_batch_norm_legit_functional", "aten::cudnn_batch_norm"})
    t.add(n, "input, weight, bias, running_mean, running_var, training, momentum=0.1, eps=1e-5", run_native_batch_norm);
  for (const char* n : {"aten::_native_batch_norm_legit_no_training"})
    t.add(n, "input, weight, bias, running_mean, running_var, momentum=0.1, eps=1e-5", run_batch_norm_no_training);
  t.add("aten::layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True",
        run_layer_norm);
  t.add("aten::native_layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-5", run_native_layer_norm);
  t.add("aten::group_norm", "input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True", run_group_norm);
  t.add("aten::instance_norm",
        "input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled",
        run_instance_norm);
  t.add("aten::_weight_norm", "v, g, dim=0", run_weight_norm);
  for (const char* n : {"aten::rms_norm", "aten::_fused_rms_norm"})
    t.add(n, "input, normalized_shape, weight=None, eps=None", run_rms_norm);
}

}  // namespace memplan
