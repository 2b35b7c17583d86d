// Joining, gathering, scattering, sorting and embedding (native/TensorShape.cpp, native/cuda/Indexing.cu,
// Embedding.cu, EmbeddingBackwardKernel.cu of PyTorch 2.11).
#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {

namespace {
std::int64_t align256(std::int64_t n) { return (n + 255) / 256 * 256; }
std::int64_t blocks_of(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile; }

/// Temporary storage of cub::DeviceRadixSort with 8-byte keys and values: per pass of 8 bits a histogram of 256
/// 8-byte bins, per tile a lookback row of 256 counters, and, with more than one pass, a second key and value
/// buffer. Tiles: 4608 items on compute capability 9.0, 3840 on 8.x.
Bytes radix_sort_temp(const Run& r, std::int64_t n, std::int64_t bits) {
  const std::int64_t passes = (bits + 7) / 8, tile = r.device.sm() >= 90 ? 4608 : 3840;
  std::int64_t bytes = 511 + 2048 * passes + 1024 * blocks_of(n, tile);
  if (passes > 1) bytes += 2 * align256(8 * n);
  return Bytes(bytes);
}

/// Temporary storage of cub's scans: 32 + tiles descriptors of 16 bytes.
Bytes scan_temp(std::int64_t n, std::int64_t tile) { return Bytes(511 + align256(16 * (32 + blocks_of(n, tile)))); }
}  // namespace

namespace op {

Tensor cat(Run& r, const TensorList& given, int dim) {
  TensorList parts;
  for (const Tensor& t : given)
    if (!(t->rank() == 1 && t->sizes[0] == 0)) parts.push_back(t);
  if (parts.empty()) return given.empty() ? Tensor() : given[0];
  const int d = wrap_dim(dim, parts[0]->rank());
  Dims sizes = parts[0]->sizes;
  bool all_last = true, all_host = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) sizes[d] = checked_add(sizes[d], parts[i]->sizes[d]);
    all_last = all_last && is_channels_last(*parts[i]) && !is_contiguous(*parts[i]);
    all_host = all_host && parts[i]->on_host;
  }
  const DType dtype = result_type(parts);
  Tensor y = all_host ? r.host(sizes, dtype) : all_last ? r.empty_strided(sizes, channels_last_strides(sizes), dtype) : r.empty(sizes, dtype);
  r.record(parts, {y}, [d](Run& r, Node& n, TensorList& g) {
    // cat_tensors_backward: narrow views of the gradient.
    TensorList out(n.next.size());
    std::int64_t at = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t len = n.inputs[i].sizes[d];
      if (n.wants(static_cast<int>(i))) out[i] = slice(r, g[0], d, at, at + len);
      at += len;
    }
    return out;
  });
  return y;
}

namespace {

/// embedding_dense_backward_cuda: up to 3072 indices one kernel adds into the zeroed gradient; above, the indices are
/// sorted and summed in segments.
Tensor embedding_backward(Run& r, const Tensor& g, std::int64_t rows, std::int64_t n) {
  const std::int64_t width = g->size(-1);
  Tensor dense = contiguous(r, g);
  if (n <= 3072) return r.empty({rows, width}, g->dtype);
  Tensor sorted = r.empty({n}, DType::int64), origin = r.empty({n}, DType::int64);
  {
    Tensor range = r.empty({n}, DType::int64);
    Tensor temp = r.scratch(radix_sort_temp(r, n, 64));
    temp.reset();
  }
  Tensor grad = r.empty({rows, width}, g->dtype);
  const std::int64_t segments = std::min(n, rows);
  Tensor offsets = r.empty({n}, DType::int64), count = r.empty({}, DType::int64);
  {
    Tensor dummy = r.empty({n}, DType::int64);
    { Tensor temp = r.scratch(scan_temp(n, 4608)); }
  }
  Tensor per_segment = r.empty({segments}, DType::int64), segment_offset = r.empty({segments}, DType::int64);
  { Tensor temp = r.scratch(scan_temp(segments, 896)); }
  Tensor total = r.empty({}, DType::int64);
  const std::int64_t partial = n / 10 + segments;
  Tensor partial_offset = r.empty({partial}, DType::int64);
  { Tensor sums = r.empty({partial, width}, DType::float32); }
  partial_offset.reset();
  total.reset();
  segment_offset.reset();
  per_segment.reset();
  count.reset();
  offsets.reset();
  origin.reset();
  sorted.reset();
  return grad;
}

}  // namespace

Tensor embedding(Run& r, const Tensor& w, const Tensor& indices) {
  Dims sizes = indices->sizes;
  sizes.push_back(w->sizes[1]);
  Tensor y = r.empty(sizes, w->dtype);
  Node* node = r.record({w}, {y}, [rows = w->sizes[0]](Run& r, Node& n, TensorList& g) {
    return TensorList{embedding_backward(r, g[0], rows, n.saved[0]->numel())};
  });
  r.save(node, indices);
  return y;
}

}  // namespace op

namespace {

/// Gathers whose backward scatters into a zeroed tensor of the input's size.
void record_scatter_back(Run& r, const Tensor& x, const Tensor& y, const Tensor& index, bool save_input) {
  Node* node = r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
  if (save_input) r.save(node, x);
  if (index) r.save(node, index);
}

ValueList run_cat(Run& r, Args& a) { return {op::cat(r, a.tensors(0), static_cast<int>(a.integer(1)))}; }

ValueList run_stack(Run& r, Args& a) {
  TensorList parts = a.tensors(0);
  const int d = op::wrap_dim(a.integer(1), parts.at(0)->rank() + 1);
  Dims sizes = parts[0]->sizes;
  sizes.insert(d, static_cast<std::int64_t>(parts.size()));
  Tensor y = r.empty(sizes, op::result_type(parts));
  r.record(parts, {y}, [d](Run& r, Node& n, TensorList& g) {
    TensorList out(n.next.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      if (n.wants(static_cast<int>(i))) out[i] = op::select(r, g[0], d, static_cast<std::int64_t>(i));
    return out;
  });
  return {y};
}

ValueList run_gather(Run& r, Args& a) {
  Tensor x = a.tensor(0), index = a.tensor(2);
  Tensor y = r.empty(index->sizes, x->dtype);
  record_scatter_back(r, x, y, index, true);
  return {y};
}

ValueList run_index_select(Run& r, Args& a) {
  Tensor x = a.tensor(0), index = a.tensor(2);
  Dims sizes = x->sizes;
  if (x->rank() > 0) sizes[op::wrap_dim(a.integer(1), x->rank())] = index->numel();
  Tensor y = r.empty(sizes, x->dtype);
  record_scatter_back(r, x, y, index, false);
  return {y};
}

/// index.Tensor: the indexed dimensions give way to the broadcast shape of the indices. Its backward sorts the linear
/// indices and adds.
ValueList run_index(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  TensorList indices = a.tensors(1);
  Dims shape;
  std::int64_t slice = 1;
  int first = -1, last = -1;
  for (int i = 0; i < static_cast<int>(indices.size()); ++i) {
    if (!indices[i]) continue;
    if (indices[i]->dtype == DType::boolean || indices[i]->dtype == DType::uint8) {
      // The size depends on the data: bounded by every element being taken.
      r.widen("aten::index.Tensor", "indexing by a mask: counted as if every element were taken", x->bytes());
      Tensor y = r.empty({x->numel()}, x->dtype);
      record_scatter_back(r, x, y, indices[i], false);
      return {y};
    }
    shape = first < 0 ? indices[i]->sizes : op::broadcast(shape, indices[i]->sizes);
    if (first < 0) first = i;
    last = i;
  }
  bool adjacent = true;
  for (int i = first; i <= last; ++i) adjacent = adjacent && i >= 0 && indices[i];
  Dims sizes;
  std::int64_t indexed = 1;
  auto put_shape = [&] { for (auto n : shape) sizes.push_back(n); };
  if (!adjacent) put_shape();
  for (int i = 0; i < x->rank(); ++i) {
    const bool is_indexed = i < static_cast<int>(indices.size()) && indices[i];
    if (is_indexed) {
      if (adjacent && i == first) put_shape();
      indexed *= x->sizes[i];
    } else {
      sizes.push_back(x->sizes[i]);
      slice *= x->sizes[i];
    }
  }
  bool host = x->on_host;
  Tensor y = host ? r.host(sizes, x->dtype) : r.empty(sizes, x->dtype);
  Node* node = r.record({x}, {y}, [from = x->sizes, n = shape.product(), indexed](Run& r, Node&, TensorList& g) {
    Tensor grad = r.empty(from, g[0]->dtype);
    // index_put_with_sort_kernel
    Tensor linear = r.empty({n}, DType::int64);
    {
      Tensor made = r.empty({n}, DType::int64);
      linear = std::move(made);
    }
    Tensor sorted = r.empty({n}, DType::int64), origin = r.empty({n}, DType::int64);
    {
      Tensor range = r.empty({n}, DType::int64);
      std::int64_t bits = 1;
      for (std::int64_t m = indexed; m > 1; m >>= 1) ++bits;
      Tensor temp = r.scratch(radix_sort_temp(r, n, bits));
      temp.reset();
    }
    origin.reset();
    sorted.reset();
    linear.reset();
    return TensorList{grad};
  });
  for (const Tensor& i : indices)
    if (i) r.save(node, i);
  return {y};
}

ValueList run_two_outputs(Run& r, const Tensor& x, const Dims& sizes) {
  Tensor y = r.empty(sizes, x->dtype), index = r.empty(sizes, DType::int64);
  Node* node = r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
  if (node) r.save_output(node, index);
  return {y, index};
}

ValueList run_topk(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Dims sizes = x->sizes;
  if (x->rank() > 0) sizes[op::wrap_dim(a.integer_or(2, -1), x->rank())] = a.integer(1);
  return run_two_outputs(r, x, sizes);
}

ValueList run_sort(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  return run_two_outputs(r, x, x->sizes);
}

ValueList run_max_dim(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int d = op::wrap_dim(a.integer(1), x->rank());
  Dims sizes = x->sizes;
  if (a.boolean(2)) sizes[d] = 1;
  else sizes.erase(d);
  return run_two_outputs(r, x, sizes);
}

/// roll over several dimensions is one roll after the other, also in the backward.
Tensor rolled(Run& r, const Tensor& x, int times) {
  Tensor y = r.empty(x->sizes, x->dtype);
  for (int i = 1; i < times; ++i) {
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
  Tensor y = a.op() == "aten::flip" ? r.empty_like(x) : r.empty(x->sizes, x->dtype);
  r.record({x}, {y}, [](Run& r, Node&, TensorList& g) { return TensorList{r.empty_like(g[0])}; });
  return {y};
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

ValueList run_pad(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims pads = a.dims(1);
  Dims sizes = x->sizes;
  for (int i = 0; i * 2 + 1 < pads.size(); ++i) sizes[x->rank() - 1 - i] = checked_add(sizes[x->rank() - 1 - i], pads[2 * i] + pads[2 * i + 1]);
  const std::string mode = a.string_or(2, "constant");
  Tensor y = r.empty(sizes, x->dtype);
  Node* node = r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
  if (mode != "constant" && a.op() == "aten::pad") r.save(node, x);
  return {y};
}

/// scatter and its kind, out of place: a copy of self; gradient of self is a copy with zeros written in.
ValueList run_scatter(Run& r, Args& a) {
  Tensor x = a.tensor(0), index = a.optional_tensor(2);
  Tensor source = a[3].is_tensor() ? a[3].tensor() : Tensor();
  Tensor y = r.empty_like(x);
  const bool add = a.op().find("add") != std::string_view::npos;
  Node* node = r.record({x, source}, {y}, [add](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) out[0] = add ? g[0] : r.empty_like(g[0]);
    if (n.wants(1)) out[1] = r.empty(n.inputs[1].sizes, g[0]->dtype);
    return out;
  });
  r.save(node, index);
  return {y};
}

ValueList run_index_put(Run& r, Args& a) {
  Tensor x = a.tensor(0), values = a.tensor(2);
  Tensor y = r.empty_like(x);
  r.record({x, values}, {y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) out[0] = r.empty_like(g[0]);
    if (n.wants(1)) out[1] = r.empty(n.inputs[1].sizes, g[0]->dtype);
    return out;
  });
  return {y};
}

/// slice_scatter, select_scatter, copy: a copy of self with a part overwritten.
ValueList run_part_scatter(Run& r, Args& a) {
  Tensor x = a.tensor(0), part = a.tensor(1);
  Tensor y = r.empty_like(x);
  r.record({x, part}, {y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) out[0] = r.empty_like(g[0]);
    if (n.wants(1)) out[1] = r.empty(n.inputs[1].sizes, g[0]->dtype);
    return out;
  });
  return {y};
}

ValueList run_one_hot(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Dims sizes = x->sizes;
  if (a.integer(1) < 0) fail_input("one_hot without a number of classes depends on the data", "aten::one_hot");
  sizes.push_back(a.integer(1));
  return {r.empty(sizes, DType::int64)};
}

}  // namespace

void register_indexing(Registry& t) {
  for (const char* n : {"aten::cat", "aten::concat", "aten::concatenate"}) t.add(n, "tensors, dim=0", run_cat);
  t.add("aten::stack", "tensors, dim=0", run_stack);
  t.add("aten::gather", "self, dim, index", run_gather);
  t.add("aten::take_along_dim", "self, indices, dim", [](Run& r, Args& a) -> ValueList {
    Args b("aten::gather", {a[0], a[2], a[1]});
    return run_gather(r, b);
  }, Fidelity::modelled);
  t.add("aten::index_select", "self, dim, index", run_index_select);
  for (const char* n : {"aten::index.Tensor", "aten::_unsafe_index.Tensor"}) t.add(n, "self, indices", run_index);
  t.add("aten::embedding", "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False", [](Run& r, Args& a) -> ValueList {
    return {op::embedding(r, a.tensor(0), a.tensor(1))};
  });
  t.add("aten::topk", "self, k, dim=-1, largest=True, sorted=True", run_topk);
  for (const char* n : {"aten::sort", "aten::sort.stable"}) t.add(n, "self, dim=-1, descending=False", run_sort, Fidelity::modelled);
  t.add("aten::argsort", "self, dim=-1, descending=False", [](Run& r, Args& a) -> ValueList { return {run_sort(r, a)[1]}; }, Fidelity::modelled);
  for (const char* n : {"aten::max.dim", "aten::min.dim", "aten::median.dim", "aten::mode", "aten::cummax", "aten::kthvalue"}) t.add(n, "self, dim=-1, keepdim=False", run_max_dim, Fidelity::modelled);
  t.add("aten::roll", "self, shifts, dims=[]", run_roll);
  for (const char* n : {"aten::flip", "aten::tril", "aten::triu", "aten::rot90", "aten::channel_shuffle"}) t.add(n, "self, a=None, b=None", run_copy_like);
  t.add("aten::repeat", "self, repeats", run_repeat);
  t.add("aten::repeat_interleave.self_int", "self, repeats, dim=None", run_repeat_interleave);
  t.add("aten::constant_pad_nd", "self, pad, value=0", run_pad);
  t.add("aten::pad", "self, pad, mode=None, value=None", run_pad);
  for (const char* n : {"aten::reflection_pad1d", "aten::reflection_pad2d", "aten::replication_pad1d", "aten::replication_pad2d"}) t.add(n, "self, padding", run_pad, Fidelity::modelled);
  for (const char* n : {"aten::scatter.src", "aten::scatter.value", "aten::scatter_add", "aten::scatter_reduce.two"}) t.add(n, "self, dim, index, src, reduce=None", run_scatter, Fidelity::modelled);
  for (const char* n : {"aten::index_add", "aten::index_copy"}) t.add(n, "self, dim, index, source", run_scatter, Fidelity::modelled);
  for (const char* n : {"aten::index_put", "aten::_unsafe_index_put", "aten::index_put_"}) t.add(n, "self, indices, values, accumulate=False", run_index_put, Fidelity::modelled);
  for (const char* n : {"aten::slice_scatter", "aten::select_scatter", "aten::copy", "aten::diagonal_scatter"}) t.add(n, "self, src, dim=0, start=None, end=None, step=1", run_part_scatter, Fidelity::modelled);
  t.add("aten::copy_", "self, src", [](Run&, Args& a) -> ValueList { return {a[0]}; }, Fidelity::modelled);
  t.add("aten::one_hot", "self, num_classes=-1", run_one_hot, Fidelity::modelled);
}

}  // namespace memplan
