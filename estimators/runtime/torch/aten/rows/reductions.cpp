// Sums, means and other reductions, with the scratch memory that CUDA's reduction kernels take.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/rows/reduced.h"
#include "estimators/runtime/torch/aten/stride_order.h"

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

}  // namespace

Dims normalized(const Tensor& x, const Dims& dims) {
  if (dims.empty()) return all_dims(x);
  Dims d;
  for (auto i : dims) d.push_back(wrap_dim(i, x->rank()));
  return d;
}

namespace {

bool contains(const Dims& dims, int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

/// The dimensions of a reduction as TensorIterator sorts and coalesces them: reduced ones first, then by ascending
/// stride.
std::vector<IterDim> iteration(const Tensor& in, const Tensor& out, const Dims& reduced) {
  std::vector<IterDim> order;
  const bool keep = out->rank() == in->rank();
  // Strides of the output with the reduced dimensions put back as zero; the last dimension first.
  for (int d = 0, o = 0; d < in->rank(); ++d) {
    const bool is_reduced = contains(reduced, d), one = in->sizes[d] == 1;
    const std::int64_t so = is_reduced || one ? 0 : out->strides[keep ? d : o];
    if (!is_reduced) ++o;
    order.insert(order.begin(), {in->sizes[d], one ? 0 : in->strides[d], so});
  }
  sort_by_stride(order, [](const IterDim& a, const IterDim& b) {
    if ((a.out == 0) != (b.out == 0)) return a.out == 0 ? -1 : 1;
    for (auto [sa, sb] : {std::pair{a.out, b.out}, std::pair{a.in, b.in}}) {
      if (sa == 0 || sb == 0) continue;
      if (sa < sb) return -1;
      if (sa > sb) return 1;
      if (a.size > b.size) return 1;
    }
    return 0;
  });
  std::vector<IterDim> joined;
  for (const IterDim& d : order) {
    IterDim* p = joined.empty() ? nullptr : &joined.back();
    if (!p || !(p->size == 1 || d.size == 1 || (p->size * p->in == d.in && p->size * p->out == d.out))) {
      joined.push_back(d);
      continue;
    }
    if (p->size == 1) p->in = d.in, p->out = d.out;
    p->size *= d.size;
  }
  return joined;
}

/// What a thread block works on: its first and second dimension in elements, and elements read at a time.
struct BlockShape {
  bool reduces_fastest = true;  ///< the dimension of the smallest stride is a reduced one
  std::int64_t dim0 = 1, dim1 = 1, vector = 1;
};

BlockShape block_shape(const std::vector<IterDim>& dims, std::int64_t inputs, std::int64_t outputs, std::int64_t offset,
                       int vt0) {
  BlockShape s;
  const int ndim = static_cast<int>(dims.size());
  if (ndim == 0) return s;
  int reduced = 0;
  while (reduced < ndim && dims[reduced].out == 0) ++reduced;
  s.reduces_fastest = reduced == ndim || dims[0].in < dims[reduced].in;
  s.dim0 = s.reduces_fastest ? inputs : outputs;
  s.dim1 = s.reduces_fastest ? outputs : inputs;
  if ((s.reduces_fastest ? dims[0].in : dims[reduced].in) != 1) return s;
  constexpr std::int64_t input_vector = 4;
  if (s.reduces_fastest) {
    if (s.dim0 > 128 && ndim == 1 && vt0 >= input_vector) s.dim0 /= input_vector;
    return s;
  }
  s.vector = 4;
  const auto fit = [&](std::int64_t n) {
    while (n % s.vector != 0) s.vector /= 2;
  };
  fit(offset);
  fit(dims[reduced].size);
  for (int j = 0; j < ndim; ++j)
    if (j != reduced) fit(dims[j].in);
  s.dim0 /= s.vector;
  return s;
}

}  // namespace

void reduction_scratch(Run& r, const Tensor& in, const Tensor& out, const Dims& dims, int acc_bytes, int vt0) {
  if (in->on_host || in->numel() == 0) return;
  const std::int64_t outputs = std::max<std::int64_t>(out->numel(), 1), inputs = in->numel() / outputs;
  const BlockShape s = block_shape(iteration(in, out, normalized(in, dims)), inputs, outputs, in->offset, vt0);
  // setReduceConfig: the block's width and height, then how many blocks share the inputs of an output.
  const std::int64_t max_threads = 512 / s.vector;
  const auto threads = [&](std::int64_t n) {
    return n < max_threads ? last_pow2(std::max<std::int64_t>(n, 1)) : max_threads;
  };
  const std::int64_t p0 = threads(s.dim0), p1 = threads(s.dim1);
  std::int64_t width = std::min<std::int64_t>(p0, 32);
  const std::int64_t height = std::min(p1, max_threads / width);
  width = std::min(p0, max_threads / height);
  std::int64_t step_in = 1, step_out = 1;
  (s.reduces_fastest ? step_in : step_out) *= width;
  const auto per_thread = [&] { return div_up(inputs, step_in); };
  const bool warps = per_thread() >= std::min<std::int64_t>(height * 16, 256);
  (warps ? step_in : step_out) *= height;
  const std::int64_t target =
      static_cast<std::int64_t>(r.device.multiprocessors) * (r.device.threads_per_multiprocessor / (width * height));
  const std::int64_t grid = div_up(outputs / s.vector, step_out);
  if (!warps || per_thread() < 256 || grid > target) return;
  const std::int64_t ctas =
      std::max(std::min(div_up(target, grid), div_up(per_thread(), 16)), div_up(per_thread(), 256));
  if (ctas <= 1) return;
  std::int64_t bytes = acc_bytes * outputs * ctas;
  if (!s.reduces_fastest) bytes *= width * s.vector;
  Tensor buffer = r.scratch(Bytes(bytes));
  Tensor semaphores = r.scratch(Bytes(4 * grid));
}

Dims reduced_sizes(const Tensor& x, const Dims& dims, bool keepdim) {
  Dims sizes;
  for (int d = 0; d < x->rank(); ++d) {
    if (!contains(dims, d))
      sizes.push_back(x->sizes[d]);
    else if (keepdim)
      sizes.push_back(1);
  }
  return sizes;
}

namespace {

/// The gradient of a sum: an expanded view, no memory.
Tensor expand_back(Run& r, Tensor g, const Dims& from, const Dims& dims, bool keepdim) {
  if (!keepdim && !from.empty()) {
    Dims sorted = dims;
    std::sort(sorted.begin(), sorted.end());
    for (auto d : sorted) g = unsqueeze(r, g, static_cast<int>(d));
  }
  return expand(r, g, from);
}

}  // namespace

Tensor reduced(Run& r, const Tensor& x, const Dims& dims, bool keepdim, DType dtype, int acc_bytes) {
  // The output of a reduction keeps the order of the remaining dimensions of its input.
  Tensor y =
      x->on_host ? r.host(reduced_sizes(x, dims, keepdim), dtype) : r.empty(reduced_sizes(x, dims, keepdim), dtype);
  // The kernel reads half types into a float result; any other input of another type is converted first.
  const bool fused = (x->dtype == DType::float16 || x->dtype == DType::bfloat16) && dtype == DType::float32;
  Tensor converted = x->on_host || x->dtype == dtype || fused ? Tensor() : r.empty_like(x, dtype);
  if (acc_bytes == 0) acc_bytes = dtype == DType::float64 || dtype == DType::int64 ? 8 : 4;
  reduction_scratch(r, x, y, dims, acc_bytes);
  return y;
}

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

using reduced::add_derived;
using reduced::reduction_constants;

/// One reduction kernel with the row's derivatives: "self, dim, keepdim".
ValueList reduce_value(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool by_dim = a.size() > 1 && a.op() != "aten::prod";
  const Dims dims = by_dim ? reduced::dims_of(x, a, 1) : op::normalized(x, {});
  const bool keep = a.size() > 2 && a[2].is_number() && a.boolean(2);
  const bool extreme = a.op().find("max") != std::string_view::npos || a.op().find("min") != std::string_view::npos;
  const bool product = a.op().starts_with("aten::prod");
  const DType dtype = product ? reduced::dtype_of(a, a.size() - 1).value_or(x->dtype) : x->dtype;
  Tensor y = op::reduced(r, x, dims, keep, dtype, extreme ? bits_of(x->dtype) / 8 : 0);
  a.row().derivatives.record(r, {{"self", x}}, {y}, reduction_constants(x, dims, keep));
  return {y};
}

/// maxes = amax(self); their infinities become 0; then log(sum(exp(self - maxes))) + maxes.
ValueList run_logsumexp(Run& r, Args& a) {
  Tensor x = a.tensor(0), y;
  const Dims dims = reduced::dims_of(x, a, 1);
  const bool keep = a.boolean(2);
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor maxes = op::reduced(r, x, dims, true, x->dtype, bits_of(x->dtype) / 8);
    {
      Tensor magnitude = r.empty_like(maxes);
      Tensor infinite = r.empty_like(maxes, DType::boolean);
      infinite.reset();
    }
    Tensor exponents = op::pointwise(r, {x, maxes}, x->dtype);
    y = op::reduced(r, exponents, dims, keep, x->dtype);
    exponents.reset();
    maxes.reset();
  }
  a.row().derivatives.record(r, {{"self", x}}, {y}, reduction_constants(x, dims, keep));
  return {y};
}

ValueList run_scan(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool integral = !is_floating(x->dtype) && !is_complex(x->dtype);
  const DType dtype = reduced::dtype_of(a, 2).value_or(integral ? DType::int64 : x->dtype);
  Tensor y = x->on_host ? op::pointwise(r, {x}, dtype) : r.empty(x->sizes, dtype);
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    op::contiguous(r, op::to(r, x, dtype));
  }
  Bindings b;
  b.set("dim", a[1]);
  b.set("self_dtype", x->dtype);
  a.row().derivatives.record(r, {{"self", x}}, {y}, std::move(b));
  return {y};
}

/// cummax and cummin: values and indices of the input's shape.
ValueList run_cumulative_extreme(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Tensor y = r.empty(x->sizes, x->dtype), index = r.empty(x->sizes, DType::int64);
  op::read_as(r, x);
  Node* node =
      r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{r.empty(g[0]->sizes, g[0]->dtype)}; });
  r.save(node, x);
  r.save_output(node, index);
  return {y, index};
}

ValueList run_count_nonzero(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  ScopedValue<bool> no_grad(r.grad_mode, false);
  Tensor mask = op::pointwise(r, {x}, DType::boolean);
  return {op::reduced(r, mask, reduced::dims_of(x, a, 1), false, DType::int64)};
}

constexpr const char* amax_formula =
    "self: scale_grad_by_count(restore_reduced_dims(grad, dim, keepdim, rank), restore_reduced_dims(result, dim, "
    "keepdim, rank) == self, dim)";
constexpr const char* extreme_formula =
    "self: scale_grad_by_count(grad, self.isnan().logical_and_(result.isnan()).logical_or_(self == result), dim)";
constexpr const char* prod_formula =
    "self: zero_mask = self == 0; zero_mask_count = zero_mask.sum(dim, true_); sum(zero_mask_count); "
    "restore_reduced_dims(grad, dim, keepdim, rank) * (restore_reduced_dims(result, dim, keepdim, rank) / self)";
}  // namespace

void register_reductions(OpTable& t) {
  t.add("aten::sum", "self, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {op::sum(r, a.tensor(0), {}, false, reduced::dtype_of(a, 1))}; });
  t.add("aten::sum.dim_IntList", "self, dim, keepdim=False, dtype=None", [](Run& r, Args& a) -> ValueList {
    return {op::sum(r, a.tensor(0), a.none(1) ? Dims{} : a.dims(1), a.boolean(2), reduced::dtype_of(a, 3))};
  });
  t.add("aten::mean", "self, dtype=None",
        [](Run& r, Args& a) -> ValueList { return {op::mean(r, a.tensor(0), {}, false, reduced::dtype_of(a, 1))}; });
  t.add("aten::mean.dim", "self, dim, keepdim=False, dtype=None", [](Run& r, Args& a) -> ValueList {
    return {op::mean(r, a.tensor(0), a.none(1) ? Dims{} : a.dims(1), a.boolean(2), reduced::dtype_of(a, 3))};
  });
  add_derived(t, {"aten::amax", "aten::amin"}, "self, dim=[], keepdim=False", reduce_value, amax_formula);
  add_derived(t, {"aten::max", "aten::min", "aten::median"}, "self", reduce_value, extreme_formula);
  add_derived(t, {"aten::prod.dim_int"}, "self, dim, keepdim=False, dtype=None", reduce_value, prod_formula);
  t.add(
       "aten::prod", "self, dtype=None",
       [](Run& r, Args& a) -> ValueList {
         Args b(row_named(r, "aten::prod"), {a[0], a[1]});
         return reduce_value(r, b);
       },
       Fidelity::modelled)
      .derivatives = Derivatives("self: grad * (result / self)");
  add_derived(t, {"aten::nansum"}, "self, dim=None, keepdim=False, dtype=None", reduce_value,
              "self: restore_reduced_dims(grad, dim, keepdim, rank).expand_like(self) * self.isnan().logical_not()");
  add_derived(t, {"aten::logsumexp"}, "self, dim, keepdim=False", run_logsumexp,
              "self: restore_reduced_dims(grad, dim, keepdim, rank) * (self - restore_reduced_dims(result, dim, "
              "keepdim, rank)).exp()");
  add_derived(t, {"aten::cumsum"}, "self, dim, dtype=None", run_scan,
              "self: to(grad, self_dtype).flip(dim).cumsum(dim).flip(dim)");
  add_derived(t, {"aten::cumprod", "aten::logcumsumexp"}, "self, dim, dtype=None", run_scan,
              "self: (result * grad).flip(dim).cumsum(dim).flip(dim) / self");
  for (const char* n : {"aten::cummax", "aten::cummin"}) t.add(n, "self, dim", run_cumulative_extreme);
  t.add("aten::count_nonzero.dim_IntList", "self, dim", run_count_nonzero);
  t.add("aten::count_nonzero", "self, dim=None", run_count_nonzero);
  t.add("aten::aminmax", "self, dim=None, keepdim=False", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    const Dims sizes = op::reduced_sizes(x, reduced::dims_of(x, a, 1), a.boolean(2));
    Tensor low = r.empty(sizes, x->dtype), high = r.empty(sizes, x->dtype);
    return {low, high};
  });
  for (const char* n : {"aten::any", "aten::all"})
    t.add(n, "self", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      return {x->on_host ? r.host({}, DType::boolean) : r.empty({}, DType::boolean)};
    });
  for (const char* n :
       {"aten::any.dim", "aten::all.dim", "aten::any.dims", "aten::all.dims", "aten::argmax", "aten::argmin"})
    t.add(
        n, "self, dim=None, keepdim=False",
        [](Run& r, Args& a) -> ValueList {
          Tensor x = a.tensor(0);
          const Dims dims = op::normalized(x, a.none(1) ? Dims{} : a[1].is_list() ? a.dims(1) : Dims{a.integer(1)});
          const bool arg = a.op().find("arg") != std::string_view::npos;
          return {r.empty(op::reduced_sizes(x, dims, a.boolean(2)), arg ? DType::int64 : DType::boolean)};
        },
        Fidelity::modelled);
}

}  // namespace memplan
