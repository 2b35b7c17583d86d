// Windows as columns, sampling by a grid (native/cuda/Im2Col.cu, GridSampler.cpp, AffineGridGenerator.cpp).
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

struct Windows {
  Dims kernel, dilation, padding, stride;
};

Windows windows(const Args& a, std::size_t first) {
  return {a.dims_n(first, 2), a.dims_n(first + 1, 2), a.dims_n(first + 2, 2), a.dims_n(first + 3, 2)};
}

Dims column_sizes(const Dims& x, const Windows& w) {
  std::int64_t columns = 1;
  for (int i = 0; i < 2; ++i) {
    if (w.stride[i] <= 0) fail_input("im2col has a stride that is not positive", "aten::im2col");
    columns =
        checked_mul(columns, (x[2 + i] + 2 * w.padding[i] - w.dilation[i] * (w.kernel[i] - 1) - 1) / w.stride[i] + 1);
  }
  return {x[0], checked_mul(x[1], w.kernel[0] * w.kernel[1]), columns};
}

/// The output is made like the input, then resized: a larger one replaces that memory, a smaller one keeps it.
Tensor resized(Run& r, const Tensor& like, const Dims& sizes) {
  Tensor first = r.empty_like(like);
  if (sizes.product() > like->numel()) return r.empty(sizes, like->dtype);
  Tensor y = r.alias(first, sizes, contiguous_strides(sizes), 0);
  y->is_view = false;
  return y;
}

ValueList run_im2col(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  if (x->rank() != 4) fail_input("im2col is known for batches of images only", "aten::im2col");
  Tensor y;
  {
    const Tensor dense = op::read_as(r, x);
    y = resized(r, dense, column_sizes(x->sizes, windows(a, 1)));
  }
  // The backward pass is col2im (native/cuda/Col2Im.cu), which reads dense columns.
  r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) {
    Tensor dx = resized(r, g[0], from);
    op::read_as(r, g[0]);
    return TensorList{dx};
  });
  return {y};
}

ValueList run_col2im(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  if (x->rank() != 3) fail_input("col2im is known for batches of columns only", "aten::col2im");
  const Dims image = a.dims_n(1, 2), kernel = a.dims_n(2, 2);
  if (kernel[0] <= 0 || kernel[1] <= 0) fail_input("col2im has a window that is not positive", "aten::col2im");
  Tensor y = resized(r, x, {x->sizes[0], x->sizes[1] / (kernel[0] * kernel[1]), image[0], image[1]});
  op::read_as(r, x);
  r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{resized(r, g[0], from)}; });
  return {y};
}

/// The backward makes the grid's gradient whether it is wanted or not.
ValueList run_grid_sampler(Run& r, Args& a) {
  Tensor x = a.tensor(0), grid = a.tensor(1);
  Dims sizes{x->sizes[0], x->sizes[1]};
  for (int i = 1; i + 1 < grid->rank(); ++i) sizes.push_back(grid->sizes[i]);
  Tensor y = r.empty(sizes, x->dtype);
  Node* node = r.record({x, grid}, {y}, [](Run& r, Node& n, TensorList&) {
    TensorList out(2);
    if (n.wants(0)) out[0] = r.empty(n.saved[1]->sizes, n.saved[1]->dtype);
    out[1] = r.empty(n.saved[0]->sizes, n.saved[0]->dtype);
    return out;
  });
  r.save(node, grid);
  r.save(node, x);
  return {y};
}

/// The grid of positions from -1 to 1 with a last column of ones; each axis takes three small tensors.
Tensor base_grid(Run& r, const Dims& size, DType dtype) {
  Dims sizes{size[0]};
  for (int i = 2; i < size.size(); ++i) sizes.push_back(size[i]);
  sizes.push_back(size.size() - 1);
  Tensor base = r.empty(sizes, dtype);
  for (int i = size.size() - 1; i >= 2; --i) {
    Tensor steps = r.empty({size[i]}, dtype), scaled = r.empty({size[i]}, dtype), divided = r.empty({size[i]}, dtype);
    steps.reset();
    scaled.reset();
  }
  return base;
}

ValueList run_affine_grid(Run& r, Args& a) {
  Tensor theta = a.tensor(0);
  const Dims size = a.dims(1);
  Dims out_sizes{size[0]};
  std::int64_t points = 1;
  for (int i = 2; i < size.size(); ++i) {
    out_sizes.push_back(size[i]);
    points = checked_mul(points, size[i]);
  }
  out_sizes.push_back(size.size() - 2);
  Tensor y;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor base = base_grid(r, size, theta->dtype);
    Tensor flat = op::view(r, base, {size[0], points, size.size() - 1});
    // Autocast sees this product of the op's own (aten/src/ATen/native/AffineGridGenerator.cpp).
    const Tensor product = call_op(r, "aten::bmm", {flat, op::transpose(r, theta, 1, 2)})[0].tensor();
    y = op::view(r, product, out_sizes);
    y->is_view = false;
  }
  r.record({theta}, {y}, [size, points](Run& r, Node&, TensorList& g) {
    Tensor base = base_grid(r, size, g[0]->dtype);
    Tensor flat = op::view(r, base, {size[0], points, size.size() - 1});
    Tensor grad = op::reshape(r, g[0], {size[0], points, size.size() - 2});
    Tensor product = op::bmm(r, op::transpose(r, flat, 1, 2), grad);
    return TensorList{op::transpose(r, product, 1, 2)};
  });
  return {y};
}

}  // namespace

void register_spatial(OpTable& t) {
  t.add("aten::im2col", "self, kernel_size, dilation, padding, stride", run_im2col);
  t.add("aten::col2im", "self, output_size, kernel_size, dilation, padding, stride", run_col2im);
  for (const char* n : {"aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d"})
    t.add(n, "input, grid, interpolation_mode, padding_mode, align_corners", run_grid_sampler);
  t.add("aten::affine_grid_generator", "theta, size, align_corners", run_affine_grid);
}

}  // namespace memplan
