// Sums, means and other reductions, with the scratch memory that CUDA's reduction kernels take.
#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {
namespace op {

namespace {

std::int64_t last_pow2(std::int64_t n) {
  std::int64_t p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}
std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// One dimension of the iteration, in elements; `out` is 0 for reduced dimensions.
struct IterDim {
  std::int64_t size, in, out;
};

Dims all_dims(const Tensor& x) {
  Dims d;
  for (int i = 0; i < x->rank(); ++i) d.push_back(i);
  return d;
}

Dims normalized(const Tensor& x, const Dims& dims) {
  if (dims.empty()) return all_dims(x);
  Dims d;
  for (auto i : dims) d.push_back(wrap_dim(i, x->rank()));
  return d;
}

bool contains(const Dims& dims, int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

}  // namespace

void reduction_scratch(Run& r, const Tensor& in, const Tensor& out, const Dims& dims, int acc_bytes, int vt0) {
  if (in->on_host || in->numel() == 0) return;
  // The dimensions as TensorIterator sorts and coalesces them: reduced ones first, then by ascending stride.
  const Dims reduced = normalized(in, dims);
  std::vector<IterDim> it;
  {
    // Strides of the output with the reduced dimensions put back as zero.
    const bool keep = out->rank() == in->rank();
    int o = 0;
    for (int d = 0; d < in->rank(); ++d) {
      const bool is_reduced = contains(reduced, d);
      std::int64_t so = 0;
      if (!is_reduced) so = out->strides[keep ? d : o];
      if (!is_reduced) ++o;
      it.push_back({in->sizes[d], in->sizes[d] == 1 ? 0 : in->strides[d], is_reduced || in->sizes[d] == 1 ? 0 : so});
    }
  }
  std::vector<IterDim> order(it.rbegin(), it.rend());
  auto should_swap = [](const IterDim& a, const IterDim& b) {
    if ((a.out == 0) != (b.out == 0)) return a.out == 0 ? -1 : 1;
    for (auto [sa, sb] : {std::pair{a.out, b.out}, std::pair{a.in, b.in}}) {
      if (sa == 0 || sb == 0) continue;
      if (sa < sb) return -1;
      if (sa > sb) return 1;
      if (a.size > b.size) return 1;
    }
    return 0;
  };
  for (std::size_t i = 1; i < order.size(); ++i) {
    std::size_t d1 = i;
    for (std::size_t d0 = i; d0-- > 0;) {
      const int c = should_swap(order[d0], order[d1]);
      if (c > 0) {
        std::swap(order[d0], order[d1]);
        d1 = d0;
      } else if (c < 0) {
        break;
      }
    }
  }
  std::vector<IterDim> c;
  for (const IterDim& d : order) {
    if (!c.empty()) {
      IterDim& p = c.back();
      const bool joins = p.size == 1 || d.size == 1 || (p.size * p.in == d.in && p.size * p.out == d.out);
      if (joins) {
        if (p.size == 1) p.in = d.in, p.out = d.out;
        p.size *= d.size;
        continue;
      }
    }
    c.push_back(d);
  }
  const int ndim = static_cast<int>(c.size());
  int reduce_dims = 0;
  while (reduce_dims < ndim && c[reduce_dims].out == 0) ++reduce_dims;
  const std::int64_t outputs = std::max<std::int64_t>(out->numel(), 1), inputs = in->numel() / outputs;

  bool fastest = true;
  std::int64_t dim0 = 1, dim1 = 1, stride = 1;
  if (ndim > 0) {
    fastest = reduce_dims == ndim || c[0].in < c[reduce_dims].in;
    dim0 = fastest ? inputs : outputs;
    dim1 = fastest ? outputs : inputs;
    stride = fastest ? c[0].in : c[reduce_dims].in;
  }
  std::int64_t vec = 1;
  constexpr std::int64_t input_vec = 4;
  if (stride == 1) {
    if (fastest && dim0 > 128 && ndim == 1 && vt0 >= input_vec) {
      dim0 /= input_vec;
    } else if (!fastest) {
      vec = 4;
      auto fit = [&](std::int64_t n) { while (n % vec != 0) vec /= 2; };
      fit(in->offset);
      fit(c[reduce_dims].size);
      for (int j = 0; j < ndim; ++j)
        if (j != reduce_dims) fit(c[j].in);
      dim0 /= vec;
    }
  }
  const std::int64_t max_threads = 512 / vec;
  const std::int64_t p0 = dim0 < max_threads ? last_pow2(std::max<std::int64_t>(dim0, 1)) : max_threads;
  const std::int64_t p1 = dim1 < max_threads ? last_pow2(std::max<std::int64_t>(dim1, 1)) : max_threads;
  std::int64_t bw = std::min<std::int64_t>(p0, 32);
  const std::int64_t bh = std::min(p1, max_threads / bw);
  bw = std::min(p0, max_threads / bh);
  std::int64_t step_in = 1, step_out = 1;
  const bool block_x = ndim == 0 || fastest;
  if (block_x) step_in *= bw;
  else step_out *= bw;
  auto per_thread = [&] { return div_up(inputs, step_in); };
  const bool warps = per_thread() >= std::min<std::int64_t>(bh * 16, 256);
  if (warps) step_in *= bh;
  else step_out *= bh;
  const std::int64_t target = static_cast<std::int64_t>(r.device.multiprocessors) * (r.device.threads_per_multiprocessor / (bw * bh));
  const std::int64_t grid = div_up(outputs / vec, step_out);
  if (!warps || per_thread() < 256 || grid > target) return;
  const std::int64_t ctas = std::max(std::min(div_up(target, grid), div_up(per_thread(), 16)), div_up(per_thread(), 256));
  if (ctas <= 1) return;
  std::int64_t bytes = acc_bytes * outputs * ctas;
  if (!block_x) bytes *= bw * vec;
  Tensor buffer = r.scratch(Bytes(bytes));
  Tensor semaphores = r.scratch(Bytes(4 * grid));
}

namespace {

Dims reduced_sizes(const Tensor& x, const Dims& dims, bool keepdim) {
  Dims sizes;
  for (int d = 0; d < x->rank(); ++d) {
    if (!contains(dims, d)) sizes.push_back(x->sizes[d]);
    else if (keepdim) sizes.push_back(1);
  }
  return sizes;
}

/// The gradient of a sum: an expanded view, no memory.
Tensor expand_back(Run& r, Tensor g, const Dims& from, const Dims& dims, bool keepdim) {
  if (!keepdim && !from.empty()) {
    Dims sorted = dims;
    std::sort(sorted.begin(), sorted.end());
    for (auto d : sorted) g = unsqueeze(r, g, static_cast<int>(d));
  }
  return expand(r, g, from);
}

Tensor reduced(Run& r, const Tensor& x, const Dims& dims, bool keepdim, DType dtype) {
  // The output of a reduction keeps the order of the remaining dimensions of its input.
  Tensor y = x->on_host ? r.host(reduced_sizes(x, dims, keepdim), dtype) : r.empty(reduced_sizes(x, dims, keepdim), dtype);
  reduction_scratch(r, x, y, dims, dtype == DType::float64 || dtype == DType::int64 ? 8 : 4);
  return y;
}

}  // namespace

Tensor sum(Run& r, const Tensor& x, const Dims& given, bool keepdim, std::optional<DType> dtype) {
  const Dims dims = normalized(x, given);
  DType d = dtype.value_or(is_integral(x->dtype) || x->dtype == DType::boolean ? DType::int64 : x->dtype);
  Tensor y = reduced(r, x, dims, keepdim, d);
  r.record({x}, {y}, [from = x->sizes, dims, keepdim](Run& r, Node&, TensorList& g) {
    return TensorList{expand_back(r, g[0], from, dims, keepdim)};
  });
  return y;
}

Tensor sum_to(Run& r, const Tensor& g, const Dims& sizes) {
  if (g->sizes == sizes) return g;
  Dims dims;
  const int lead = g->rank() - sizes.size();
  for (int i = 0; i < lead; ++i) dims.push_back(i);
  for (int i = lead; i < g->rank(); ++i)
    if (sizes[i - lead] == 1 && g->sizes[i] != 1) dims.push_back(i);
  Tensor y = dims.empty() ? g : sum(r, g, dims, true);
  return lead > 0 ? view(r, y, sizes) : y;
}

Tensor mean(Run& r, const Tensor& x, const Dims& given, bool keepdim, std::optional<DType> dtype) {
  const Dims dims = normalized(x, given);
  Tensor y = reduced(r, x, dims, keepdim, dtype.value_or(x->dtype));
  // mean_backward: expand, then divide by the count, which materialises the full size.
  r.record({x}, {y}, [from = x->sizes, dims, keepdim](Run& r, Node&, TensorList& g) {
    return TensorList{div_number(r, expand_back(r, g[0], from, dims, keepdim))};
  });
  return y;
}

}  // namespace op

namespace {

std::optional<DType> dtype_of(const Args& a, std::size_t i) {
  auto d = a.dtype(i);
  return d.empty() ? std::nullopt : std::optional(d[0]);
}

/// Reductions to a value: amax/amin and the like keep input and result; the gradient is spread over equal entries.
ValueList reduce_value(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims dims = a.none(1) ? Dims{} : op::normalized(x, a.dims(1));
  const bool keep = a.size() > 2 && !a.none(2) && a.boolean(2);
  const Dims used = op::normalized(x, dims);
  Tensor y = op::reduced(r, x, used, keep, x->dtype);
  Node* node = r.record({x}, {y}, [used, keep](Run& r, Node& n, TensorList& g) {
    const Tensor& x = n.saved[0];
    Tensor mask = op::pointwise(r, {x}, DType::boolean);
    Tensor grad = op::expand_back(r, g[0], x->sizes, used, keep);
    Tensor scaled = op::pointwise(r, {grad, mask}, g[0]->dtype);
    Tensor count = op::sum(r, mask, used, true);
    return TensorList{op::pointwise(r, {scaled, count}, g[0]->dtype)};
  });
  r.save(node, x);
  r.save_output(node, y);
  return {y};
}

ValueList variance(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims dims = op::normalized(x, a.none(1) ? Dims{} : a.dims(1));
  const bool keep = a.boolean(3);
  Tensor y = r.empty(op::reduced_sizes(x, dims, keep), x->dtype);
  op::reduction_scratch(r, x, y, dims, 16);
  const bool is_std = a.op().find("std") != std::string_view::npos;
  Node* node = r.record({x}, {y}, [dims, keep](Run& r, Node& n, TensorList& g) {
    // var_backward: (2 / n) * grad * (x - x.mean(dims, true)); the right operand is evaluated first.
    const Tensor& x = n.saved[0];
    Tensor grad = g[0];
    if (!keep) {
      Dims sorted = dims;
      std::sort(sorted.begin(), sorted.end());
      for (auto d : sorted) grad = op::unsqueeze(r, grad, static_cast<int>(d));
    }
    Tensor m = op::mean(r, x, dims, true);
    Tensor centred = op::sub(r, x, m);
    Tensor scaled = op::mul_number(r, grad);
    return TensorList{op::mul(r, scaled, centred)};
  });
  r.save(node, x);
  if (is_std) r.save_output(node, y);
  return {y};
}

}  // namespace

void register_reductions(Registry& t) {
  t.add("aten::sum", "self, dtype=None", [](Run& r, Args& a) -> ValueList { return {op::sum(r, a.tensor(0), {}, false, dtype_of(a, 1))}; });
  t.add("aten::sum.dim_IntList", "self, dim, keepdim=False, dtype=None", [](Run& r, Args& a) -> ValueList {
    return {op::sum(r, a.tensor(0), a.none(1) ? Dims{} : a.dims(1), a.boolean(2), dtype_of(a, 3))};
  });
  t.add("aten::mean", "self, dtype=None", [](Run& r, Args& a) -> ValueList { return {op::mean(r, a.tensor(0), {}, false, dtype_of(a, 1))}; });
  t.add("aten::mean.dim", "self, dim, keepdim=False, dtype=None", [](Run& r, Args& a) -> ValueList {
    return {op::mean(r, a.tensor(0), a.none(1) ? Dims{} : a.dims(1), a.boolean(2), dtype_of(a, 3))};
  });
  for (const char* n : {"aten::amax", "aten::amin", "aten::prod.dim_int", "aten::logsumexp"})
    t.add(n, "self, dim=None, keepdim=False", reduce_value, Fidelity::modelled);
  for (const char* n : {"aten::max", "aten::min", "aten::prod", "aten::median"}) t.add(n, "self, dim=None", reduce_value, Fidelity::modelled);
  for (const char* n : {"aten::var.correction", "aten::std.correction"}) t.add(n, "self, dim=None, correction=None, keepdim=False", variance, Fidelity::modelled);
  for (const char* n : {"aten::linalg_vector_norm", "aten::norm.ScalarOpt_dim"}) t.add(n, "self, ord=2, dim=None, keepdim=False, dtype=None", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    const Dims dims = op::normalized(x, a.none(2) ? Dims{} : a.dims(2));
    Tensor y = op::reduced(r, x, dims, a.boolean(3), dtype_of(a, 4).value_or(x->dtype));
    Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList& g) {
      // norm_backward for p = 2: grad * (x / norm), masked where the norm is zero
      Tensor scale = op::pointwise(r, {n.saved[1], g[0]}, g[0]->dtype);
      return TensorList{op::pointwise(r, {n.saved[0]}, n.saved[0]->dtype)};
    });
    r.save(node, x);
    r.save_output(node, y);
    return {y};
  }, Fidelity::modelled);
  for (const char* n : {"aten::any", "aten::all"}) t.add(n, "self", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    return {x->on_host ? r.host({}, DType::boolean) : r.empty({}, DType::boolean)};
  });
  for (const char* n : {"aten::any.dim", "aten::all.dim", "aten::argmax", "aten::argmin"})
    t.add(n, "self, dim=None, keepdim=False", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      const Dims dims = op::normalized(x, a.none(1) ? Dims{} : a.dims(1));
      const bool arg = a.op().find("arg") != std::string_view::npos;
      return {r.empty(op::reduced_sizes(x, dims, a.boolean(2)), arg ? DType::int64 : DType::boolean)};
    }, Fidelity::modelled);
  for (const char* n : {"aten::cumsum", "aten::cumprod", "aten::logcumsumexp"})
    t.add(n, "self, dim, dtype=None", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      const bool integral = !is_floating(x->dtype) && !is_complex(x->dtype);
      Tensor y = op::pointwise(r, {x}, dtype_of(a, 2).value_or(integral ? DType::int64 : x->dtype));
      r.record({x}, {y}, [](Run& r, Node&, TensorList& g) {
        // cumsum_backward: flip, cumsum, flip
        Tensor flipped = r.empty_like(g[0]);
        Tensor summed = r.empty_like(g[0]);
        return TensorList{r.empty_like(summed)};
      });
      return {y};
    }, Fidelity::modelled);
}

}  // namespace memplan
