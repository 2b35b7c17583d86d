// Convolutions: aten/src/ATen/native/Convolution.cpp, native/cudnn/Conv_v8.cpp and native/cuda/DepthwiseConv2d.cu.
#include <fmt/format.h>

#include <algorithm>

#include "estimators/runtime/torch/aten/cudnn_workspace.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

struct Geometry {
  Dims stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
  bool one_d = false;  ///< viewed as a 2-D one with a height of 1
};

Dims output_sizes(const Dims& x, const Dims& w, const Geometry& g) {
  Dims y{x[0], g.transposed ? checked_mul(w[1], g.groups) : w[0]};
  for (int i = 2; i < x.size(); ++i) {
    const std::int64_t s = g.stride[i - 2], p = g.padding[i - 2], d = g.dilation[i - 2], k = w[i];
    if (s <= 0) fail_input("a convolution has a stride that is not positive");
    const std::int64_t n = g.transposed ? checked_mul(x[i] - 1, s) - 2 * p + d * (k - 1) + g.output_padding[i - 2] + 1
                                        : (x[i] + 2 * p - d * (k - 1) - 1) / s + 1;
    if (n <= 0) fail_input("a convolution's output is empty", {}, "the input is smaller than the kernel");
    y.push_back(n);
  }
  return y;
}

/// Depthwise convolutions in float16 NCHW that PyTorch gives to cuDNN because it was measured to be faster there
/// (Convolution.cpp: use_cudnn_depthwise and check_cudnn_depthwise_workload_with_filter).
bool cudnn_depthwise(const Tensor& x, const Tensor& w, const Geometry& g) {
  const std::int64_t n = x->sizes[0], c = x->sizes[1], h = x->sizes[2], width = x->sizes[3], filter = w->sizes[3];
  if (x->dtype != DType::float16 || w->dtype != DType::float16) return false;
  if (g.dilation[0] != 1 || g.dilation[1] != 1 || c < 32 || (g.stride[0] != g.stride[1] && h != 1)) return false;
  const std::int64_t stride = g.stride[1];
  if (h == 1 && stride == 1) return true;
  if (w->sizes[2] != filter || (filter != 1 && filter != 3 && filter != 5) || width < 7) return false;
  if (stride == 1) return true;
  if (stride != 2) return false;
  if (n == 1) return filter != 1 || width <= 28;
  if (filter == 1) return n <= 16 && c >= 128 && width <= 7;
  return c >= 512 || (c >= 256 && width >= 28);
}

/// PyTorch's own kernels for depthwise convolutions take no workspace; channels_last ones always go to cuDNN.
bool native_depthwise(const Tensor& x, const Tensor& w, const Geometry& g, bool channels_last) {
  const bool depthwise = !g.transposed && x->sizes[1] == g.groups && g.groups > 1 && w->sizes[0] % x->sizes[1] == 0;
  return depthwise && !channels_last && (x->rank() == 5 || !cudnn_depthwise(x, w, g));
}

void workspace(Run& r, const ConvProblem& problem, ConvPass pass, std::string_view op) {
  const ConvWorkspace found =
      conv_workspace(problem, pass, {r.device, r.profile.workspaces.cudnn, r.options.workspaces, r.options.cudnn});
  // In NCHW the engines copy input and output into a workspace of their layout: these bytes bound what is usually off.
  std::optional<Effect> off;
  if (found.evidence != Evidence::recorded)
    off = {found.bytes, bytes_of(problem.dtype, checked_add(problem.input.product(), problem.output.product()))};
  r.note(op, About::workspace, found.evidence, found.why, off);
  if (found.asked)
    r.note({}, About::program, Evidence::chosen,
           fmt::format("the cuDNN {} that is installed here was asked about convolutions that no table has",
                       r.profile.workspaces.cudnn));
  Tensor w = r.scratch(found.bytes, Category::workspace);
}

ConvProblem problem_of(const Tensor& x, const Tensor& w, const Dims& y, const Geometry& g, bool channels_last) {
  ConvProblem p{x->sizes, w->sizes, y, g.stride, g.padding, g.dilation, g.groups, x->dtype, channels_last};
  if (g.transposed) std::swap(p.input, p.output);
  return p;
}

/// Gradients of input, weight and bias, whichever the node wants.
TensorList convolution_backward(Run& r, Node& n, const Tensor& given, const Geometry& g, const Dims& sizes,
                                bool channels_last, bool depthwise) {
  const Tensor x = g.one_d ? op::contiguous(r, n.saved[0]) : n.saved[0];
  const Tensor& w = n.saved[1];
  const auto format = channels_last ? op::Format::channels_last : op::Format::contiguous;
  TensorList out(3);
  const ConvProblem problem = problem_of(x, w, sizes, g, channels_last);
  auto like = [&](const Tensor& t) {
    return channels_last ? r.empty_strided(t->sizes, channels_last_strides(t->sizes), t->dtype)
                         : r.empty(t->sizes, t->dtype);
  };
  if (depthwise) {
    // conv_depthwise2d_backward_cuda_out makes the weight's gradient first, conv_depthwise3d_backward_cuda_out the
    // input's.
    Tensor grad = op::contiguous(r, given, format);
    const auto weight_gradient = [&] {
      if (!n.wants(1)) return;
      Tensor dense = op::contiguous(r, x, format);
      out[1] = like(w);
    };
    if (x->rank() == 4) weight_gradient();
    if (n.wants(0)) {
      Tensor dense_w = op::contiguous(r, w, format);
      out[0] = like(x);
    }
    if (x->rank() == 5) weight_gradient();
  } else {
    // convolution_backward makes the input dense where the weight's gradient needs it, cudnn_convolution_backward then
    // the gradient; both live until the call returns.
    Tensor dense = n.wants(1) ? op::contiguous(r, x, format) : Tensor();
    Tensor grad = op::contiguous(r, given, format);
    if (n.wants(0)) {
      out[0] = like(x);
      Tensor dense_w = op::contiguous(r, w, format);
      workspace(r, problem, g.transposed ? ConvPass::forward : ConvPass::data_gradient, "aten::convolution_backward");
    }
    if (n.wants(1)) {
      out[1] = like(w);
      workspace(r, problem, ConvPass::weight_gradient, "aten::convolution_backward");
    }
  }
  if (n.wants(2)) {
    Dims dims{0};
    for (int i = 2; i < given->rank(); ++i) dims.push_back(i);
    out[2] = op::sum(r, given, dims, false);
  }
  return out;
}

Tensor convolution(Run& r, Tensor x, const Tensor& w, const Tensor& bias, Geometry g) {
  const bool one_d = x->rank() == 3;
  if (one_d) {
    // A 1-D convolution is viewed as a 2-D one with a height of 1.
    Tensor y = convolution(r, op::unsqueeze(r, x, 2), op::unsqueeze(r, w, 2), bias,
                           {{1, g.stride[0]},
                            {0, g.padding[0]},
                            {1, g.dilation[0]},
                            {0, g.output_padding.empty() ? 0 : g.output_padding[0]},
                            g.groups,
                            g.transposed,
                            true});
    // That view is made below autograd: what is written into the result is written into no other tensor's history.
    Tensor flat = op::squeeze(r, y, 2);
    flat->is_view = false;
    flat->base.reset();
    return flat;
  }
  // "avoid accidentally going through NHWC for permuted 3d input": that of a 1-D convolution is made dense first.
  const bool permuted = g.one_d && !is_contiguous(*x);
  const bool channels_last =
      x->dtype != DType::float64 && ((!permuted && suggests_channels_last(*x)) || suggests_channels_last(*w));
  const bool depthwise = native_depthwise(x, w, g, channels_last);
  const Dims sizes = output_sizes(x->sizes, w->sizes, g);
  const auto format = channels_last ? op::Format::channels_last : op::Format::contiguous;
  Tensor y = r.dispatched("aten::convolution", [&] {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    const Tensor given = g.one_d ? op::contiguous(r, x) : x;
    Tensor dense = op::contiguous(r, given, format);
    Tensor y =
        channels_last ? r.empty_strided(sizes, channels_last_strides(sizes), x->dtype) : r.empty(sizes, x->dtype);
    Tensor dense_w = op::contiguous(r, w, format);
    if (!depthwise)
      workspace(r, problem_of(x, w, sizes, g, channels_last),
                g.transposed ? ConvPass::data_gradient : ConvPass::forward, "aten::convolution");
    return TensorList{y};
  })[0];
  Node* node = r.record({x, w, bias}, {y}, [g, channels_last, depthwise, sizes](Run& r, Node& n, TensorList& grads) {
    return convolution_backward(r, n, grads[0], g, sizes, channels_last, depthwise);
  });
  r.save(node, x);
  r.save(node, w);
  return y;
}

Geometry geometry(const Args& a, std::size_t first, int n) {
  Geometry g;
  g.stride = a.dims_n(first, n);
  // Padding may be a word ("same"), which PyTorch resolves from the kernel.
  if (std::holds_alternative<std::string>(a[first + 1].v)) {
    g.padding = Dims::filled(n, 0);
    if (a.string_or(first + 1, "") == "same") {
      const Dims d = a.dims_n(first + 2, n);
      for (int i = 0; i < n; ++i) g.padding[i] = d[i] * (a.tensor(1)->sizes[i + 2] - 1) / 2;
    }
  } else {
    g.padding = a.dims_n(first + 1, n);
  }
  g.dilation = a.dims_n(first + 2, n);
  g.output_padding = Dims::filled(n, 0);
  return g;
}

/// A batch dimension of 1 is added to unbatched inputs.
Tensor batched(Run& r, const Tensor& x, int n) { return x->rank() == n + 1 ? op::unsqueeze(r, x, 0) : x; }

template <int n>
ValueList run_conv(Run& r, Args& a) {
  Geometry g = geometry(a, 3, n);
  g.groups = a.integer(6);
  Tensor x = a.tensor(0);
  Tensor y = convolution(r, batched(r, x, n), a.tensor(1), a.optional_tensor(2), g);
  return {x->rank() == n + 1 ? op::squeeze(r, y, 0) : y};
}

template <int n>
ValueList run_conv_transpose(Run& r, Args& a) {
  Geometry g;
  g.stride = a.dims_n(3, n);
  g.padding = a.dims_n(4, n);
  g.output_padding = a.dims_n(5, n);
  g.groups = a.integer(6);
  g.dilation = a.dims_n(7, n);
  g.transposed = true;
  return {convolution(r, batched(r, a.tensor(0), n), a.tensor(1), a.optional_tensor(2), g)};
}

ValueList run_convolution(Run& r, Args& a) {
  const int n = a.tensor(1)->rank() - 2;
  Geometry g = geometry(a, 3, n);
  g.transposed = a.boolean(6);
  g.output_padding = a.dims_n(7, n);
  g.groups = a.integer(8);
  return {convolution(r, a.tensor(0), a.tensor(1), a.optional_tensor(2), g)};
}

}  // namespace

void register_convolution(OpTable& t) {
  const char* schema = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1";
  for (const char* n : {"aten::conv1d", "aten::conv1d.padding"}) t.add(n, schema, run_conv<1>);
  for (const char* n : {"aten::conv2d", "aten::conv2d.padding"}) t.add(n, schema, run_conv<2>);
  for (const char* n : {"aten::conv3d", "aten::conv3d.padding"}) t.add(n, schema, run_conv<3>, Fidelity::modelled);
  const char* transposed = "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1";
  for (const char* n : {"aten::conv_transpose1d", "aten::conv_transpose1d.default"})
    t.add(n, transposed, run_conv_transpose<1>);
  for (const char* n : {"aten::conv_transpose2d.input", "aten::conv_transpose2d"})
    t.add(n, transposed, run_conv_transpose<2>);
  for (const char* n : {"aten::conv_transpose3d.input", "aten::conv_transpose3d"})
    t.add(n, transposed, run_conv_transpose<3>, Fidelity::modelled);
  for (const char* n : {"aten::convolution", "aten::_convolution"})
    t.add(n,
          "input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, benchmark=None, "
          "deterministic=None, cudnn_enabled=None, allow_tf32=None",
          run_convolution);
}

}  // namespace memplan
