// Ops whose output shares the input's storage. Their backward is a view of the gradient where PyTorch's is one, and
// a zero-filled full-size tensor where a part was taken (slice, select).
#include <fmt/format.h>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {
namespace op {

Dims infer_size(Dims sizes, std::int64_t numel) {
  int open = -1;
  std::int64_t known = 1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1)
      open = i;
    else
      known = checked_mul(known, sizes[i]);
  }
  if (open >= 0) {
    if (known == 0 || numel % known != 0)
      fail_input("a reshape does not fit the number of elements", {}, "the model may fix a dimension that you changed");
    sizes[open] = numel / known;
  } else if (known != numel) {
    fail_input("a reshape does not fit the number of elements", {}, "the model may fix a dimension that you changed");
  }
  return sizes;
}

std::optional<Dims> view_strides(const TensorBody& t, const Dims& sizes) {
  // computeStride_impl (aten/src/ATen/TensorUtils.cpp)
  if (t.numel() == 0) return contiguous_strides(sizes);
  Dims strides = Dims::filled(sizes.size(), 1);
  int view_d = sizes.size() - 1;
  if (t.rank() == 0) return strides;
  std::int64_t chunk_base = t.strides.back(), tensor_numel = 1, view_numel = 1;
  for (int d = t.rank() - 1; d >= 0; --d) {
    tensor_numel *= t.sizes[d];
    if (d == 0 || (t.sizes[d - 1] != 1 && t.strides[d - 1] != tensor_numel * chunk_base)) {
      while (view_d >= 0 && (view_numel < tensor_numel || sizes[view_d] == 1)) {
        strides[view_d] = view_numel * chunk_base;
        view_numel *= sizes[view_d];
        --view_d;
      }
      if (view_numel != tensor_numel) return std::nullopt;
      if (d > 0) {
        chunk_base = t.strides[d - 1];
        tensor_numel = 1;
        view_numel = 1;
      }
    }
  }
  if (view_d != -1) return std::nullopt;
  return strides;
}

namespace {

/// Records a view op whose backward is again a view (or reshape) of the gradient.
Tensor recorded(Run& r, const Tensor& x, Tensor y, std::function<Tensor(Run&, const Tensor&)> back) {
  r.record({x}, {y}, [back = std::move(back)](Run& r, Node&, TensorList& g) { return TensorList{back(r, g[0])}; });
  r.set_base(y, x);
  return y;
}

}  // namespace

Tensor view(Run& r, const Tensor& x, Dims sizes) {
  sizes = infer_size(sizes, x->numel());
  auto strides = view_strides(*x, sizes);
  if (!strides) fail_input("a view does not fit the strides of its tensor", {}, "PyTorch would refuse it too");
  return recorded(r, x, r.alias(x, sizes, *strides, x->offset),
                  [from = x->sizes](Run& r, const Tensor& g) { return reshape(r, g, from); });
}

Tensor unsafe_view(Run& r, const Tensor& x, Dims sizes) {
  Tensor y = view(r, x, sizes);
  y->base.reset();
  return y;
}

Tensor reshape(Run& r, const Tensor& x, Dims sizes) {
  sizes = infer_size(sizes, x->numel());
  if (view_strides(*x, sizes)) return view(r, x, sizes);
  Tensor copy = clone(r, x, Format::contiguous);
  return unsafe_view(r, copy, sizes);
}

Tensor permute(Run& r, const Tensor& x, const Dims& order) {
  if (order.size() != x->rank()) fail_input("a permutation does not fit the rank of its tensor");
  Dims sizes, strides, inverse = Dims::filled(order.size(), 0);
  for (int i = 0; i < order.size(); ++i) {
    const int d = wrap_dim(order[i], x->rank());
    sizes.push_back(x->sizes[d]);
    strides.push_back(x->strides[d]);
    inverse[d] = i;
  }
  return recorded(r, x, r.alias(x, sizes, strides, x->offset),
                  [inverse](Run& r, const Tensor& g) { return permute(r, g, inverse); });
}

Tensor transpose(Run& r, const Tensor& x, int a, int b) {
  Dims order;
  for (int i = 0; i < x->rank(); ++i) order.push_back(i);
  if (x->rank() > 0) std::swap(order[wrap_dim(a, x->rank())], order[wrap_dim(b, x->rank())]);
  return permute(r, x, order);
}

Tensor t(Run& r, const Tensor& x) {
  if (x->rank() < 2) return recorded(r, x, r.detach(x), [](Run&, const Tensor& g) { return g; });
  return transpose(r, x, 0, 1);
}

Tensor expand(Run& r, const Tensor& x, Dims sizes) {
  const int extra = sizes.size() - x->rank();
  if (extra < 0) fail_input("expand to fewer dimensions");
  Dims strides = Dims::filled(sizes.size(), 0);
  for (int i = sizes.size() - 1; i >= 0; --i) {
    const int d = i - extra;
    const std::int64_t have = d >= 0 ? x->sizes[d] : 1;
    const std::int64_t stride = d >= 0 ? x->strides[d] : (i + 1 < sizes.size() ? sizes[i + 1] * strides[i + 1] : 1);
    if (sizes[i] == -1) sizes[i] = have;
    if (have == sizes[i])
      strides[i] = stride;
    else if (have == 1)
      strides[i] = 0;
    else
      fail_input("an expand does not fit the shape of its tensor", {},
                 "the model may fix a dimension that you changed");
  }
  Tensor y = r.alias(x, sizes, strides, x->offset);
  return recorded(r, x, y, [from = x->sizes](Run& r, const Tensor& g) { return sum_to(r, g, from); });
}

Tensor unsqueeze(Run& r, const Tensor& x, int dim) {
  const int d = wrap_dim(dim, x->rank() + 1);
  Dims sizes = x->sizes, strides = x->strides;
  const std::int64_t stride = d >= x->rank() ? 1 : sizes[d] * strides[d];
  sizes.insert(d, 1);
  strides.insert(d, stride);
  return recorded(r, x, r.alias(x, sizes, strides, x->offset),
                  [d](Run& r, const Tensor& g) { return squeeze(r, g, d); });
}

Tensor squeeze(Run& r, const Tensor& x, int dim) {
  const int d = wrap_dim(dim, x->rank());
  if (x->rank() == 0 || x->sizes[d] != 1) return recorded(r, x, r.detach(x), [](Run&, const Tensor& g) { return g; });
  Dims sizes = x->sizes, strides = x->strides;
  sizes.erase(d);
  strides.erase(d);
  return recorded(r, x, r.alias(x, sizes, strides, x->offset),
                  [d](Run& r, const Tensor& g) { return unsqueeze(r, g, d); });
}

Tensor select(Run& r, const Tensor& x, int dim, std::int64_t index) {
  const int d = wrap_dim(dim, x->rank());
  if (index < 0) index += x->sizes[d];
  Dims sizes = x->sizes, strides = x->strides;
  const std::int64_t offset = x->offset + index * strides[d];
  sizes.erase(d);
  strides.erase(d);
  // select_backward: zeros of the full size, into which the gradient is copied.
  return recorded(r, x, r.alias(x, sizes, strides, offset),
                  [from = x->sizes](Run& r, const Tensor& g) { return r.empty(from, g->dtype); });
}

Tensor slice(Run& r, const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  const int d = wrap_dim(dim, x->rank());
  const std::int64_t n = x->sizes[d];
  if (step <= 0) fail_input("a slice has a step that is not positive");
  if (start < 0) start += n;
  if (end < 0) end += n;
  start = std::clamp<std::int64_t>(start, 0, n);
  end = std::clamp<std::int64_t>(end, start, n);
  Dims sizes = x->sizes, strides = x->strides;
  sizes[d] = (end - start + step - 1) / step;
  const std::int64_t offset = x->offset + start * strides[d];
  strides[d] *= step;
  return recorded(r, x, r.alias(x, sizes, strides, offset),
                  [from = x->sizes](Run& r, const Tensor& g) { return r.empty(from, g->dtype); });
}

void expect_pieces(std::int64_t pieces) {
  constexpr std::int64_t most = 1'000'000;
  if (pieces > most)
    fail_input(fmt::format("a tensor is cut into {} pieces; the limit is {}", pieces, most), {},
               "give the dimension that is cut a smaller size");
}

TensorList split(Run& r, const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  const int d = wrap_dim(dim, x->rank());
  TensorList parts;
  std::int64_t at = 0;
  for (std::int64_t n : sizes) {
    Dims s = x->sizes;
    s[d] = n;
    parts.push_back(r.alias(x, s, x->strides, x->offset + at * x->strides[d]));
    at += n;
  }
  // split_with_sizes_backward: pieces without a gradient become zeros, then one cat of the full size.
  TensorList no_inputs{x};
  Node* node = r.record(no_inputs, parts, [sizes, d, from = x->sizes, dtype = x->dtype](Run& r, Node&, TensorList& g) {
    TensorList pieces;
    for (std::size_t i = 0; i < g.size(); ++i) {
      Dims s = from;
      s[d] = sizes[i];
      pieces.push_back(g[i] ? g[i] : r.empty(s, dtype));
    }
    return TensorList{cat(r, pieces, d)};
  });
  (void)node;
  return parts;
}

Tensor flatten(Run& r, const Tensor& x, int start, int end) {
  if (x->rank() == 0) return reshape(r, x, {1});
  const int a = wrap_dim(start, x->rank()), b = wrap_dim(end, x->rank());
  if (a == b) return x;
  Dims sizes;
  for (int i = 0; i < a; ++i) sizes.push_back(x->sizes[i]);
  std::int64_t n = 1;
  for (int i = a; i <= b; ++i) n = checked_mul(n, x->sizes[i]);
  sizes.push_back(n);
  for (int i = b + 1; i < x->rank(); ++i) sizes.push_back(x->sizes[i]);
  return reshape(r, x, sizes);
}

}  // namespace op

namespace {

ValueList list_of(const TensorList& tensors) {
  ValueList l;
  for (const Tensor& t : tensors) l.emplace_back(t);
  return {Value(std::move(l))};
}

std::vector<std::int64_t> equal_parts(std::int64_t n, std::int64_t size) {
  std::vector<std::int64_t> parts;
  if (size <= 0) fail_input("a split into pieces of size zero");
  op::expect_pieces(n / size);
  for (std::int64_t at = 0; at < n; at += size) parts.push_back(std::min(size, n - at));
  if (parts.empty()) parts.push_back(0);
  return parts;
}

}  // namespace

void register_views(OpTable& t) {
  // Programs are traced on the CPU, where `x.contiguous().view(…)` of a tensor that is contiguous there leaves no trace
  // of contiguous(). Where CUDA's kernels lay the tensor out otherwise (attention), the copy is real: the program is
  // known to run, so a view that does not fit had a copy before it.
  for (const char* name : {"aten::view", "aten::_unsafe_view"})
    t.add(name, "self, size", [](Run& r, Args& a) -> ValueList { return {op::reshape(r, a.tensor(0), a.dims(1))}; });
  for (const char* name : {"aten::reshape", "aten::view_copy"})
    t.add(name, "self, shape", [](Run& r, Args& a) -> ValueList { return {op::reshape(r, a.tensor(0), a.dims(1))}; });
  for (const char* name : {"aten::view_as", "aten::reshape_as"})
    t.add(name, "self, other",
          [](Run& r, Args& a) -> ValueList { return {op::reshape(r, a.tensor(0), a.tensor(1)->sizes)}; });
  t.add("aten::permute", "self, dims",
        [](Run& r, Args& a) -> ValueList { return {op::permute(r, a.tensor(0), a.dims(1))}; });
  for (const char* name : {"aten::transpose.int", "aten::transpose", "aten::swapaxes"})
    t.add(name, "self, dim0, dim1", [](Run& r, Args& a) -> ValueList {
      return {op::transpose(r, a.tensor(0), static_cast<int>(a.integer(1)), static_cast<int>(a.integer(2)))};
    });
  t.add("aten::t", "self", [](Run& r, Args& a) -> ValueList { return {op::t(r, a.tensor(0))}; });
  for (const char* name : {"aten::mT", "aten::numpy_T"})
    t.add(name, "self", [](Run& r, Args& a) -> ValueList { return {op::transpose(r, a.tensor(0), -2, -1)}; });
  t.add("aten::broadcast_tensors", "tensors", [](Run& r, Args& a) {
    TensorList tensors = a.tensors(0);
    Dims sizes;
    for (const Tensor& x : tensors) sizes = op::broadcast(sizes, x->sizes);
    // expand_outplace (aten/src/ATen/ExpandUtils.h): a tensor that has the common shape is handed on as it is.
    for (Tensor& x : tensors)
      if (!(x->sizes == sizes)) x = op::expand(r, x, sizes);
    return list_of(tensors);
  });
  t.add("aten::expand", "self, size, implicit=False",
        [](Run& r, Args& a) -> ValueList { return {op::expand(r, a.tensor(0), a.dims(1))}; });
  t.add("aten::expand_as", "self, other",
        [](Run& r, Args& a) -> ValueList { return {op::expand(r, a.tensor(0), a.tensor(1)->sizes)}; });
  t.add("aten::unsqueeze", "self, dim",
        [](Run& r, Args& a) -> ValueList { return {op::unsqueeze(r, a.tensor(0), static_cast<int>(a.integer(1)))}; });
  t.add("aten::squeeze.dim", "self, dim",
        [](Run& r, Args& a) -> ValueList { return {op::squeeze(r, a.tensor(0), static_cast<int>(a.integer(1)))}; });
  t.add("aten::squeeze.dims", "self, dim", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    Dims dims = a.dims(1);
    for (auto& d : dims) d = op::wrap_dim(d, x->rank());
    std::sort(dims.begin(), dims.end(), std::greater<>());
    for (std::int64_t d : dims) x = op::squeeze(r, x, static_cast<int>(d));
    return {x};
  });
  t.add("aten::squeeze", "self", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    for (int d = x->rank() - 1; d >= 0; --d)
      if (x->sizes[d] == 1) x = op::squeeze(r, x, d);
    return {x};
  });
  t.add("aten::select.int", "self, dim, index", [](Run& r, Args& a) -> ValueList {
    return {op::select(r, a.tensor(0), static_cast<int>(a.integer(1)), a.integer(2))};
  });
  t.add("aten::slice.Tensor", "self, dim=0, start=None, end=None, step=1", [](Run& r, Args& a) -> ValueList {
    return {op::slice(r, a.tensor(0), static_cast<int>(a.integer(1)), a.integer_or(2, 0), a.integer_or(3, INT64_MAX),
                      a.integer(4))};
  });
  // x[a:b] of Python: a slice that takes everything is left out (applySlice of python_variable_indexing.cpp), which
  // tracing does not do.
  t.add("memplan::index_slice", "self, dim=0, start=None, end=None, step=1", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    const int dim = op::wrap_dim(static_cast<int>(a.integer(1)), x->rank());
    const std::int64_t start = a.integer_or(2, 0), end = a.integer_or(3, INT64_MAX);
    if (start == 0 && end >= x->sizes[dim] && a.integer(4) == 1) return {x};
    return {op::slice(r, x, dim, start, end, a.integer(4))};
  });
  t.add("aten::narrow", "self, dim, start, length", [](Run& r, Args& a) -> ValueList {
    return {op::slice(r, a.tensor(0), static_cast<int>(a.integer(1)), a.integer(2), a.integer(2) + a.integer(3))};
  });
  for (const char* name : {"aten::split.Tensor", "aten::unsafe_split.Tensor", "aten::split"})
    t.add(name, "self, split_size, dim=0", [](Run& r, Args& a) {
      Tensor x = a.tensor(0);
      const int d = op::wrap_dim(a.integer(2), x->rank());
      const auto parts = a[1].is_list() ? a.integers(1) : equal_parts(x->sizes[d], a.integer(1));
      return list_of(op::split(r, x, parts, d));
    });
  for (const char* name : {"aten::split_with_sizes", "aten::split.sizes", "aten::unsafe_split_with_sizes"})
    t.add(name, "self, split_sizes, dim=0", [](Run& r, Args& a) {
      return list_of(op::split(r, a.tensor(0), a.integers(1), static_cast<int>(a.integer(2))));
    });
  for (const char* name : {"aten::chunk", "aten::unsafe_chunk"})
    t.add(name, "self, chunks, dim=0", [](Run& r, Args& a) {
      Tensor x = a.tensor(0);
      const int d = op::wrap_dim(a.integer(2), x->rank());
      const std::int64_t n = x->sizes[d], chunks = std::max<std::int64_t>(1, a.integer(1));
      return list_of(op::split(r, x, equal_parts(n, std::max<std::int64_t>(1, (n + chunks - 1) / chunks)), d));
    });
  t.add("aten::unbind.int", "self, dim=0", [](Run& r, Args& a) {
    Tensor x = a.tensor(0);
    const int d = op::wrap_dim(a.integer(1), x->rank());
    op::expect_pieces(x->sizes[d]);
    Dims sizes = x->sizes, strides = x->strides;
    sizes.erase(d), strides.erase(d);
    TensorList parts;
    for (std::int64_t i = 0; i < x->sizes[d]; ++i)
      parts.push_back(r.alias(x, sizes, strides, x->offset + i * x->strides[d]));
    // unbind_backward: stack of the pieces' gradients, zeros for those without one.
    r.record({x}, parts, [sizes, d, dtype = x->dtype](Run& r, Node&, TensorList& g) {
      TensorList pieces;
      // A missing piece is expanded from a scalar of its own.
      for (const Tensor& piece : g)
        pieces.push_back(op::unsqueeze(r, piece ? piece : op::expand(r, r.empty({}, dtype), sizes), d));
      Tensor grad = op::cat(r, pieces, d);
      for (Tensor& piece : pieces) piece.reset();
      return TensorList{grad};
    });
    return list_of(parts);
  });
  t.add("aten::flatten.using_ints", "self, start_dim=0, end_dim=-1", [](Run& r, Args& a) -> ValueList {
    return {op::flatten(r, a.tensor(0), static_cast<int>(a.integer(1)), static_cast<int>(a.integer(2)))};
  });
  t.add("aten::unflatten.int", "self, dim, sizes", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    const int d = op::wrap_dim(a.integer(1), x->rank());
    Dims inner = op::infer_size(a.dims(2), x->sizes[d]), sizes;
    for (int i = 0; i < d; ++i) sizes.push_back(x->sizes[i]);
    for (auto n : inner) sizes.push_back(n);
    for (int i = d + 1; i < x->rank(); ++i) sizes.push_back(x->sizes[i]);
    return {op::view(r, x, sizes)};
  });
  t.add("aten::movedim.int", "self, source, destination", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    const int s = op::wrap_dim(a.integer(1), x->rank()), d = op::wrap_dim(a.integer(2), x->rank());
    Dims order;
    for (int i = 0; i < x->rank(); ++i)
      if (i != s) order.push_back(i);
    order.insert(d, s);
    return {op::permute(r, x, order)};
  });
  for (const char* name : {"aten::detach", "aten::alias", "aten::lift_fresh_copy", "aten::detach_"})
    t.add(name, "self", [](Run& r, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      return {a.op() == "aten::alias" ? op::view(r, x, x->sizes) : r.detach(x)};
    });
}

}  // namespace memplan
