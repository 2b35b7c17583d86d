// Copies in another arrangement: rolling, flipping, repeating, padding, windows, triangles, diagonals, stacking.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

TensorList op::some_tensors(const Args& a) {
  TensorList parts = a.tensors(0);
  if (parts.empty() || !std::all_of(parts.begin(), parts.end(), [](const Tensor& t) { return bool(t); }))
    fail_input(std::string(a.op()) + " gets no list of tensors", std::string(a.op()));
  return parts;
}

namespace {

Tensor zeros(Run& r, const Dims& sizes, DType dtype) { return r.empty(sizes, dtype); }

/// A view whose gradient is written into zeros of the input's size.
Tensor part_of(Run& r, const Tensor& x, const Tensor& y) {
  r.record({x}, {y},
           [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{zeros(r, from, g[0]->dtype)}; });
  return y;
}

/// roll over several dimensions is one roll after the other, also in the backward.
Tensor rolled(Run& r, const Tensor& x, int times) {
  Tensor y = op::read_as(r, x);
  for (int i = 0; i < times; ++i) {
    Tensor next = r.empty(x->sizes, x->dtype);
    y = std::move(next);
  }
  return y;
}

ValueList run_roll(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int times = std::max(1, a.dims(1).size());
  Tensor y = rolled(r, x, times);
  r.record({x}, {y}, [times](Run& r, Node&, TensorList& g) { return TensorList{rolled(r, g[0], times)}; });
  return {y};
}

/// Same-size copies: flip, tril, triu and the like, forward and backward.
ValueList run_copy_like(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Tensor y = a.op() == "aten::tril" || a.op() == "aten::triu" ? r.empty(x->sizes, x->dtype) : r.empty_like(x);
  r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{r.empty_like(g[0])}; });
  return {y};
}

/// rot90: a quarter turn is a flip of a transpose.
ValueList run_rot90(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims d = a.dims(2);
  const std::int64_t k = ((a.integer(1) % 4) + 4) % 4;
  auto flipped = [&](const Tensor& t) { return call_op(r, "aten::flip", {t})[0].tensor(); };
  if (k == 0) return {op::clone(r, x)};
  if (k == 2) return {flipped(x)};
  return {op::transpose(r, flipped(x), static_cast<int>(d[0]), static_cast<int>(d[1]))};
}

ValueList run_repeat(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims repeats = a.dims(1);
  const int lead = repeats.size() - x->rank();
  Dims sizes;
  for (int i = 0; i < repeats.size(); ++i) sizes.push_back(checked_mul(repeats[i], i < lead ? 1 : x->sizes[i - lead]));
  Tensor y = r.empty(sizes, x->dtype);
  r.record({x}, {y}, [repeats, lead, from = x->sizes](Run& r, Node&, TensorList& g) {
    // repeat_backward: the new leading dimensions are summed, then the repeated ones.
    Tensor grad = g[0];
    for (int i = 0; i < lead; ++i) grad = op::sum(r, grad, {0}, false);
    Dims split, dims;
    for (int i = 0; i < from.size(); ++i) {
      if (repeats[i + lead] != 1) {
        dims.push_back(split.size());
        split.push_back(repeats[i + lead]);
      }
      split.push_back(from[i]);
    }
    if (!dims.empty()) grad = op::sum(r, op::reshape(r, grad, split), dims, false);
    return TensorList{grad};
  });
  return {y};
}

ValueList run_repeat_interleave(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const std::int64_t n = a.integer(1);
  if (a.none(2)) x = op::flatten(r, x, 0, -1);
  const int d = a.none(2) ? 0 : op::wrap_dim(a.integer(2), x->rank());
  Tensor wide = op::unsqueeze(r, x, d + 1);
  Dims sizes = wide->sizes;
  sizes[d + 1] = n;
  return {op::flatten(r, op::clone(r, op::expand(r, wide, sizes), op::Format::contiguous), d, d + 1)};
}

ValueList run_stack(Run& r, Args& a) {
  const TensorList parts = op::some_tensors(a);
  const int d = op::wrap_dim(a.integer(1), parts[0]->rank() + 1);
  Dims sizes = parts[0]->sizes;
  const auto count = static_cast<std::int64_t>(parts.size());
  sizes.insert(d, count);
  // A cat, whose result keeps channels_last, and a view of that (native/TensorShape.cpp).
  const bool last =
      d < parts[0]->rank() && std::ranges::all_of(parts, [](const Tensor& t) { return suggests_channels_last(*t); });
  Tensor y;
  if (last) {
    Dims joined = parts[0]->sizes;
    joined[d] = checked_mul(joined[d], count);
    Dims strides = channels_last_strides(joined);
    strides.insert(d, parts[0]->sizes[d] * strides[d]);
    y = r.empty_strided(sizes, strides, op::result_type(parts));
  } else {
    y = r.empty(sizes, op::result_type(parts));
  }
  r.record(parts, {y}, [d](Run& r, Node& n, TensorList& g) {
    TensorList out(n.next.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      if (n.wants(static_cast<int>(i))) out[i] = op::select(r, g[0], d, static_cast<std::int64_t>(i));
    return out;
  });
  return {y};
}

ValueList run_join(Run& r, Args& a) {
  // hstack, vstack and dstack: at least 1-D, 2-D or 3-D, then one cat.
  TensorList parts = op::some_tensors(a);
  const bool vertical = a.op() == "aten::vstack";
  for (Tensor& t : parts) {
    if (vertical && t->rank() == 1) t = op::unsqueeze(r, t, 0);
    if (t->rank() == 0) t = op::unsqueeze(r, t, 0);
  }
  if (a.op() == "aten::dstack") {
    for (Tensor& t : parts) {
      if (t->rank() == 1) t = op::unsqueeze(r, t, 0);
      if (t->rank() == 2) t = op::unsqueeze(r, t, 2);
    }
    return {op::cat(r, parts, 2)};
  }
  return {op::cat(r, parts, vertical || parts[0]->rank() == 1 ? 0 : 1)};
}

/// constant_pad_nd (native/PadNd.cpp) with nothing to add: a clone, which keeps the order of the strides.
ValueList run_pad_nothing(Run& r, const Tensor& x) {
  const auto clone = [](Run& r, const Tensor& t) {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    return op::clone(r, t);
  };
  Tensor y = clone(r, x);
  r.record({x}, {y}, [clone](Run& r, Node&, TensorList& g) { return TensorList{clone(r, g[0])}; });
  return {y};
}

/// _pad_circular_symint (native/PadNd.cpp): written part by part into an empty tensor, the middle first.
ValueList run_pad_circular(Run& r, const Tensor& x, const Dims& pads, const Dims& sizes) {
  const auto low = [&](int i) { return pads[2 * i]; };
  const auto high = [&](int i) { return pads[2 * i + 1]; };
  const auto positive = [](std::int64_t n) { return std::max<std::int64_t>(n, 0); };
  Tensor y = r.empty(sizes, x->dtype), to = y, from = x;
  const int n = pads.size() / 2;
  for (int i = 0; i < n; ++i) {
    const int dim = x->rank() - 1 - i;
    to = op::slice(r, to, dim, positive(low(i)), sizes[dim] - positive(high(i)));
    from = op::slice(r, from, dim, positive(-low(i)), x->sizes[dim] - positive(-high(i)));
  }
  op::copy_(r, to, from);
  for (int i = 0; i < n; ++i) {
    const int dim = x->rank() - 1 - i;
    const std::int64_t end = sizes[dim] - positive(high(i));
    if (low(i) > 0) {
      to = op::slice(r, y, dim, 0, low(i));
      from = op::slice(r, y, dim, end - low(i), end);
      op::copy_(r, to, from);
    }
    if (high(i) > 0) {
      to = op::slice(r, y, dim, end, sizes[dim]);
      from = op::slice(r, y, dim, positive(low(i)), positive(low(i)) + high(i));
      op::copy_(r, to, from);
    }
  }
  return {y};
}

ValueList run_pad(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims pads = a.dims(1);
  const bool constant =
      a.op() == "aten::constant_pad_nd" || (a.op() == "aten::pad" && a.string_or(2, "constant") == "constant");
  if (constant && std::all_of(pads.begin(), pads.end(), [](std::int64_t n) { return n == 0; }))
    return run_pad_nothing(r, x);
  Dims sizes = x->sizes;
  for (int i = 0; i * 2 + 1 < pads.size(); ++i)
    sizes[x->rank() - 1 - i] = checked_add(sizes[x->rank() - 1 - i], pads[2 * i] + pads[2 * i + 1]);
  const std::string mode = a.string_or(2, "constant");
  if (!constant && a.op() == "aten::pad" && mode == "circular" && pads.size() / 2 <= x->rank())
    return run_pad_circular(r, x, pads, sizes);
  const auto suggested = [](const TensorBody& t) {
    return suggests_channels_last(t) ? op::Format::channels_last : op::Format::contiguous;
  };
  Tensor y = op::empty_as(r, constant ? suggested(*x) : op::Format::contiguous, sizes, x->dtype);
  if (mode == "reflect") op::read_as(r, x);
  const bool reflects = mode == "reflect" || a.op().starts_with("aten::reflection_pad");
  Node* node = r.record({x}, {y}, [constant, reflects, suggested, from = x->sizes](Run& r, Node&, TensorList& g) {
    const auto format = constant ? suggested(*g[0]) : op::Format::contiguous;
    Tensor grad = op::empty_as(r, format, from, g[0]->dtype);
    if (reflects) op::read_as(r, g[0]);  // ReflectionPad.cu: grad_output_.contiguous()
    return TensorList{grad};
  });
  if (mode != "constant" && a.op() == "aten::pad") r.save(node, x);
  return {y};
}

Tensor diagonal(Run& r, const Tensor& x, std::int64_t offset, int d1, int d2) {
  d1 = op::wrap_dim(d1, x->rank());
  d2 = op::wrap_dim(d2, x->rank());
  Dims sizes = x->sizes, strides = x->strides;
  const std::int64_t n =
      offset >= 0 ? std::min(x->sizes[d1], x->sizes[d2] - offset) : std::min(x->sizes[d1] + offset, x->sizes[d2]);
  const std::int64_t start = offset >= 0 ? offset * x->strides[d2] : -offset * x->strides[d1],
                     step = x->strides[d1] + x->strides[d2];
  sizes.erase(std::max(d1, d2));
  strides.erase(std::max(d1, d2));
  sizes.erase(std::min(d1, d2));
  strides.erase(std::min(d1, d2));
  sizes.push_back(std::max<std::int64_t>(n, 0));
  strides.push_back(step);
  return part_of(r, x, r.alias(x, sizes, strides, x->offset + start));
}

ValueList run_diagonal(Run& r, Args& a) {
  return {diagonal(r, a.tensor(0), a.integer(1), static_cast<int>(a.integer(2)), static_cast<int>(a.integer(3)))};
}

Tensor diag_embed(Run& r, const Tensor& x, std::int64_t offset) {
  Dims sizes = x->sizes;
  sizes[sizes.size() - 1] += std::abs(offset);
  sizes.push_back(sizes.back());
  Tensor y = zeros(r, sizes, x->dtype);
  r.record({x}, {y}, [offset](Run& r, Node&, TensorList& g) { return TensorList{diagonal(r, g[0], offset, -2, -1)}; });
  return y;
}

/// diag: of a vector a matrix, of a matrix a copy of its diagonal.
ValueList run_diag(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  if (x->rank() == 1) return {diag_embed(r, x, a.integer(1))};
  Tensor view = diagonal(r, x, a.integer(1), 0, 1);
  return {op::clone(r, view, op::Format::contiguous)};
}

/// Windows of a dimension as a new last one; the backward numbers the entries it covers.
ValueList run_unfold(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int d = op::wrap_dim(a.integer(1), x->rank());
  const std::int64_t size = a.integer(2), step = a.integer(3), n = x->sizes[d];
  if (step <= 0 || size > n) fail_input("a window does not fit its dimension", "aten::unfold");
  Dims sizes = x->sizes, strides = x->strides;
  sizes[d] = (n - size) / step + 1;
  strides[d] *= step;
  sizes.push_back(size);
  strides.push_back(x->strides[d]);
  Tensor y = r.alias(x, sizes, strides, x->offset);
  r.record({x}, {y},
           [from = x->sizes, covered = std::min(n, (sizes[d] - 1) * step + size)](Run& r, Node&, TensorList& g) {
             Tensor grad = zeros(r, from, g[0]->dtype);
             { Tensor index = r.empty({covered}, DType::int64); }
             return TensorList{grad};
           });
  return {y};
}

/// tile is repeat with leading ones filled in.
ValueList run_tile(Run& r, Args& a) {
  Dims repeats = a.dims(1);
  while (repeats.size() < a.tensor(0)->rank()) repeats.insert(0, 1);
  ValueList list;
  for (auto n : repeats) list.emplace_back(n);
  Args b(row_named(r, "aten::repeat"), {a[0], Value(std::move(list))});
  return run_repeat(r, b);
}

ValueList run_meshgrid(Run& r, Args& a) {
  TensorList parts = a.tensors(0);
  const bool swap = a.size() > 1 && a.string_or(1, "ij") == "xy" && parts.size() >= 2;
  if (swap) std::swap(parts[0], parts[1]);
  Dims sizes;
  for (const Tensor& t : parts) sizes.push_back(t->numel());
  ValueList out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Dims shape = Dims::filled(sizes.size(), 1);
    shape[static_cast<int>(i)] = sizes[static_cast<int>(i)];
    Tensor grid = op::expand(r, op::view(r, parts[i], shape), sizes);
    out.emplace_back(swap ? op::transpose(r, grid, 0, 1) : grid);
  }
  if (swap) std::swap(out[0], out[1]);
  return {Value(std::move(out))};
}

/// tensor_split: slices, each with a gradient of its own of the full size.
ValueList run_tensor_split(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int d = op::wrap_dim(a.integer(2), x->rank());
  const std::int64_t n = x->sizes[d];
  std::vector<std::int64_t> ends;
  if (a[1].is_list()) {
    ends = a.integers(1);
    ends.push_back(n);
  } else {
    const std::int64_t parts = std::max<std::int64_t>(1, a.integer(1));
    op::expect_pieces(parts);
    for (std::int64_t i = 0, at = 0; i < parts; ++i) ends.push_back(at += n / parts + (i < n % parts ? 1 : 0));
  }
  ValueList out;
  std::int64_t at = 0;
  for (auto end : ends) {
    out.emplace_back(op::slice(r, x, d, at, end));
    at = end;
  }
  return {Value(std::move(out))};
}

Tensor clone_preserving_strides(Run& r, const Tensor& x) {
  // at::native::clone_preserve_strides: of a view the whole storage is copied, and the copy seen through the same
  // strides.
  const std::int64_t whole = x->storage ? x->storage->bytes / bytes_of(x->dtype, 1).count : 0;
  if (x->on_host || !x->is_view || whole <= x->numel()) return r.empty_like(x);
  Tensor full = r.empty({whole}, x->dtype);
  return r.alias(full, x->sizes, x->strides, x->offset);
}

/// slice_scatter, select_scatter, diagonal_scatter: a copy of self with a part overwritten. The gradient of self is a
/// copy with zeros (made first) written in, that of the part a view.
ValueList run_part_scatter(Run& r, Args& a) {
  Tensor x = a.tensor(0), part = a.tensor(1);
  Tensor y = clone_preserving_strides(r, x);
  const std::string op(a.op());
  const Value v2 = a[2], v3 = a[3], v4 = a[4], v5 = a[5];
  r.record({x, part}, {y}, [=](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) {
      Tensor nothing = zeros(r, n.inputs[1].sizes, g[0]->dtype);
      out[0] = op::clone(r, g[0]);
    }
    auto number = [](const Value& v, std::int64_t fallback) {
      return v.is_none() ? fallback : to_int(v, "aten::slice_scatter");
    };
    if (n.wants(1)) {
      if (op == "aten::slice_scatter")
        out[1] =
            op::slice(r, g[0], static_cast<int>(number(v2, 0)), number(v3, 0), number(v4, INT64_MAX), number(v5, 1));
      else if (op == "aten::select_scatter")
        out[1] = op::select(r, g[0], static_cast<int>(number(v2, 0)), number(v3, 0));
      else if (op == "aten::diagonal_scatter")
        out[1] = diagonal(r, g[0], number(v2, 0), static_cast<int>(number(v3, 0)), static_cast<int>(number(v4, 1)));
      else
        out[1] = r.empty(n.inputs[1].sizes, g[0]->dtype);
    }
    return out;
  });
  return {y};
}

}  // namespace

void register_rearrange(OpTable& t) {
  t.add("aten::roll", "self, shifts, dims=[]", run_roll);
  for (const char* n : {"aten::flip", "aten::tril", "aten::triu", "aten::channel_shuffle",
                        "aten::native_channel_shuffle", "aten::fliplr", "aten::flipud"})
    t.add(n, "self, a=None, b=None", run_copy_like);
  t.add("aten::rot90", "self, k=1, dims=[]", run_rot90);
  t.add("aten::repeat", "self, repeats", run_repeat);
  t.add("aten::tile", "self, dims", run_tile);
  t.add("aten::repeat_interleave.self_int", "self, repeats, dim=None", run_repeat_interleave);
  t.add("aten::stack", "tensors, dim=0", run_stack);
  for (const char* n : {"aten::hstack", "aten::vstack", "aten::dstack"}) t.add(n, "tensors", run_join);
  t.add("aten::constant_pad_nd", "self, pad, value=0", run_pad);
  t.add("aten::pad", "self, pad, mode=None, value=None", run_pad);
  for (const char* n : {"aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d",
                        "aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d"})
    t.add(n, "self, padding", run_pad);
  t.add("aten::diagonal", "self, offset=0, dim1=0, dim2=1", run_diagonal);
  t.add("aten::diag_embed", "self, offset=0, dim1=-2, dim2=-1",
        [](Run& r, Args& a) -> ValueList { return {diag_embed(r, a.tensor(0), a.integer(1))}; });
  t.add("aten::diag", "self, diagonal=0", run_diag);
  t.add("aten::unfold", "self, dimension, size, step", run_unfold);
  t.add("aten::broadcast_to", "self, size",
        [](Run& r, Args& a) -> ValueList { return {op::expand(r, a.tensor(0), a.dims(1))}; });
  for (const char* n : {"aten::meshgrid", "aten::meshgrid.indexing"}) t.add(n, "tensors, indexing=None", run_meshgrid);
  for (const char* n : {"aten::tensor_split.sections", "aten::tensor_split.indices"})
    t.add(n, "self, sections, dim=0", run_tensor_split);
  t.add("aten::slice_scatter", "self, src, dim=0, start=None, end=None, step=1", run_part_scatter);
  t.add("aten::select_scatter", "self, src, dim, index, unused=None, unused2=None", run_part_scatter);
  t.add("aten::diagonal_scatter", "self, src, offset=0, dim1=0, dim2=1, unused=None", run_part_scatter);
  t.add("aten::copy", "self, src, a=None, b=None, c=None, d=None", run_part_scatter, Fidelity::modelled);
}

}  // namespace memplan
