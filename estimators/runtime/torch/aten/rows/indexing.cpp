// Joining, gathering, scattering, sorting and embedding (native/TensorShape.cpp, native/cuda/Indexing.cu,
// Embedding.cu, EmbeddingBackwardKernel.cu of PyTorch 2.11).
#include <bit>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/sorting.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

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
    for (int k = 0; k < parts[i]->rank(); ++k)
      if (parts[i]->rank() != sizes.size() || (k != d && parts[i]->sizes[k] != sizes[k]))
        fail_input("two tensors that are joined differ in another dimension", {},
                   "the model may fix a dimension that you changed");
    if (i > 0) sizes[d] = checked_add(sizes[d], parts[i]->sizes[d]);
    all_last = all_last && suggests_channels_last(*parts[i]);
    all_host = all_host && parts[i]->on_host;
  }
  const DType dtype = result_type(given);  // of those that are skipped as well (cat, TensorShape.cpp)
  Tensor y = all_host   ? r.host(sizes, dtype)
             : all_last ? r.empty_strided(sizes, channels_last_strides(sizes), dtype)
                        : r.empty(sizes, dtype);
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

/// embedding_backward_cuda_kernel: the indices are sorted and their gradients summed in segments of equal indices.
Tensor sorted_embedding_backward(Run& r, DType dtype, std::int64_t rows, std::int64_t width, std::int64_t n) {
  Tensor sorted = r.empty({n}, DType::int64), origin = r.empty({n}, DType::int64);
  {
    Tensor range = r.empty({n}, DType::int64);
    // cub.cuh: get_num_bits of the number of rows.
    const int bits =
        r.profile.kernels.embedding_sorts_needed_bits ? std::bit_width(static_cast<std::uint64_t>(rows)) : 64;
    Tensor temp = r.scratch(radix_sort_temp(r, n, 8, bits));
    temp.reset();
  }
  Tensor grad = r.empty({rows, width}, dtype);
  const std::int64_t segments = std::min(n, rows);
  Tensor offsets = r.empty({n}, DType::int64), count = r.empty({}, DType::int64);
  {
    Tensor dummy = r.empty({n}, DType::int64);
    { Tensor temp = r.scratch(scan_temp(n, embedding_scan_tile(r), r.profile.kernels.embedding_scan_bytes)); }
  }
  Tensor per_segment = r.empty({segments}, DType::int64), segment_offset = r.empty({segments}, DType::int64);
  { Tensor temp = r.scratch(scan_temp(segments, 896, r.profile.kernels.embedding_scan_bytes)); }
  Tensor total = r.empty({}, DType::int64);
  const std::int64_t partial = n / 10 + segments;
  Tensor partial_offset = r.empty({partial}, DType::int64);
  // Few long segments, thirty indices to each and fewer than four to a multiprocessor, are added up in place (16-bit
  // ones in fp32 beside it); seen in PyTorch 2.11 on cards of 58, 108 and 132 multiprocessors.
  if (segments <= n / 30 && segments < 4 * r.device.multiprocessors) {
    Tensor owner = r.empty({partial}, DType::int64);
    if (bytes_of(dtype, 1) < Bytes(4)) Tensor wide = r.empty({rows, width}, DType::float32);
  } else {
    Tensor sums = r.empty({partial, width}, DType::float32);
  }
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

/// embedding_dense_backward_cuda: up to 3072 indices one kernel adds into the zeroed gradient.
Tensor embedding_backward(Run& r, const Tensor& g, std::int64_t rows, const Tensor& indices) {
  const std::int64_t width = g->size(-1), n = indices->numel();
  Tensor index = contiguous(r, indices);
  Tensor dense = contiguous(r, g);
  if (n <= 3072) return r.empty({rows, width}, g->dtype);
  return sorted_embedding_backward(r, g->dtype, rows, width, n);
}

}  // namespace

Tensor embedding(Run& r, const Tensor& w, const Tensor& indices) {
  Dims sizes = indices->sizes;
  sizes.push_back(w->sizes[1]);
  // weight.index_select(0, indices.reshape(-1)): an expanded index has no such view and is copied.
  Tensor flat = indices->rank() == 1 ? indices : reshape(r, indices, {-1});
  Tensor y = r.empty(sizes, w->dtype);
  flat.reset();
  Node* node = r.record({w}, {y}, [rows = w->sizes[0]](Run& r, Node& n, TensorList& g) {
    return TensorList{embedding_backward(r, g[0], rows, n.saved[0])};
  });
  r.save(node, indices);
  return y;
}

}  // namespace op

namespace {

/// Gathers whose backward scatters into a zeroed tensor of the input's size.
void record_scatter_back(Run& r, const Tensor& x, const Tensor& y, const Tensor& index, bool save_input) {
  Node* node = r.record(
      {x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
  if (index) r.save(node, index);
  if (save_input) r.save(node, x);
}

ValueList run_cat(Run& r, Args& a) { return {op::cat(r, a.tensors(0), static_cast<int>(a.integer(1)))}; }

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

/// What index.Tensor reads and makes: the indexed dimensions give way to the broadcast shape of the indices.
struct Indexed {
  Dims shape;  ///< of the indices together
  Dims sizes;  ///< of the result
  int first = -1, last = -1;
  bool adjacent = true;    ///< the indexed dimensions are neighbours
  std::int64_t slice = 1;  ///< elements of the dimensions that are not indexed
};

Indexed indexed(const TensorBody& x, const TensorList& indices) {
  Indexed out;
  for (int i = 0; i < static_cast<int>(indices.size()); ++i) {
    if (!indices[i]) continue;
    out.shape = out.first < 0 ? indices[i]->sizes : op::broadcast(out.shape, indices[i]->sizes);
    if (out.first < 0) out.first = i;
    out.last = i;
  }
  for (int i = out.first; i <= out.last; ++i) out.adjacent = out.adjacent && i >= 0 && indices[i];
  auto put_shape = [&] {
    for (auto n : out.shape) out.sizes.push_back(n);
  };
  if (!out.adjacent) put_shape();
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_indexed = i < static_cast<int>(indices.size()) && indices[i];
    if (is_indexed) {
      if (out.adjacent && i == out.first) put_shape();
    } else {
      out.sizes.push_back(x.sizes[i]);
      out.slice *= x.sizes[i];
    }
  }
  return out;
}

/// Indices on the CPU are copied to the GPU in each pass (make_info, native/TensorAdvancedIndexing.cpp); what is kept
/// for the backward pass is on the CPU.
TensorList copies_on_gpu(Run& r, const TensorList& on_cpu) {
  TensorList copies;
  for (const Tensor& i : on_cpu) copies.push_back(r.empty(i->sizes, i->dtype, Category::temporary));
  return copies;
}

/// index.Tensor. Its backward sorts the linear indices and adds.
ValueList run_index(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  TensorList indices = a.tensors(1);
  for (const Tensor& i : indices)
    if (i && (i->dtype == DType::boolean || i->dtype == DType::uint8)) {
      // The size depends on the data: bounded by every element being taken.
      r.note("aten::index.Tensor", About::op, Evidence::assumed,
             "indexing by a mask: counted as if every element were taken", Effect{x->bytes(), x->bytes()});
      Tensor y = r.empty({x->numel()}, x->dtype);
      record_scatter_back(r, x, y, i, false);
      return {y};
    }
  const Indexed made = indexed(*x, indices);
  const Dims& shape = made.shape;
  bool host = x->on_host;
  // CUDA wants all indices with the same strides: others are made contiguous in their common shape.
  TensorList copies;
  bool alike = true;
  for (const Tensor& i : indices)
    if (i) alike = alike && i->sizes == shape && i->strides == indices[made.first]->strides;
  for (const Tensor& i : indices)
    if (i && !alike && !host && !(i->sizes == shape && is_contiguous(*i))) copies.push_back(r.empty(shape, i->dtype));
  TensorList on_cpu;
  for (const Tensor& i : indices)
    if (i && !host && i->on_host && i->rank() > 0) on_cpu.push_back(i);
  const TensorList sent = copies_on_gpu(r, on_cpu);
  Tensor y = host ? r.host(made.sizes, x->dtype) : r.empty(made.sizes, x->dtype);
  while (!copies.empty()) copies.pop_back();
  const int count = static_cast<int>(
      std::count_if(indices.begin(), indices.end(), [](const Tensor& i) { return static_cast<bool>(i); }));
  // index_put_with_sort_kernel (native/cuda/Indexing.cu): keys have the bits of the largest position, counted in slices
  // of what follows the indexed dimensions. Indices that are not neighbours come first, and all else follows them.
  std::int64_t behind = made.adjacent ? 1 : made.slice;
  for (int i = made.last + 1; made.adjacent && i < x->rank(); ++i) behind *= x->sizes[i];
  const std::int64_t largest = behind > 0 ? (x->numel() - 1) / behind : 0;
  Node* node = r.record({x}, {y}, [=, from = x->sizes, n = shape.product()](Run& r, Node&, TensorList& g) {
    Tensor grad = r.empty(from, g[0]->dtype);
    const TensorList again = copies_on_gpu(r, on_cpu);
    op::sort_linear_indices(r, n, count, largest, g[0]);
    return TensorList{grad};
  });
  for (const Tensor& i : indices)
    if (i) r.save(node, i);
  return {y};
}

/// take_along_dim wraps the indices into a tensor of their own, which is what gather keeps.
ValueList run_take_along_dim(Run& r, Args& a) {
  Tensor x = a.tensor(0), index = a.tensor(1);
  Tensor wrapped = r.empty(index->sizes, DType::int64);
  Args b(row_named(r, "aten::gather"), {a[0], a[2], Value(wrapped)});
  return run_gather(r, b);
}

ValueList run_take(Run& r, Args& a) {
  Tensor x = a.tensor(0), index = a.tensor(1);
  Tensor y = r.empty(index->sizes, x->dtype);
  record_scatter_back(r, x, y, index, true);
  return {y};
}

/// embedding_bag: the output, the bag of every index, the bags' sizes, and (for max only) the indices of the maxima.
ValueList run_embedding_bag(Run& r, Args& a) {
  Tensor w = a.tensor(0), indices = a.tensor(1), offsets = a.tensor(2);
  const std::int64_t bags = offsets->numel() - (a.boolean(7)), mode = a.integer_or(4, 0);
  Tensor sizes = r.empty({bags}, DType::int64), owner = r.empty({indices->numel()}, DType::int64);
  Tensor y = r.empty({bags, w->sizes[1]}, w->dtype);
  Tensor maxima = mode == 2 ? r.empty({bags, w->sizes[1]}, DType::int64) : r.empty({0}, DType::int64);
  Node* node = r.record({w}, {y}, [rows = w->sizes[0]](Run& r, Node& n, TensorList& g) {
    Tensor dense = op::contiguous(r, g[0]);
    return TensorList{op::sorted_embedding_backward(r, dense->dtype, rows, dense->size(-1), n.saved[0]->numel())};
  });
  r.save(node, indices);
  r.save(node, offsets);
  r.save_output(node, owner);
  r.save_output(node, sizes);
  r.save_output(node, maxima);
  return {y, owner, sizes, maxima};
}

/// diff (native/ReduceOps.cpp): what is put before and behind is joined first, then neighbours are subtracted, `n`
/// times.
ValueList run_diff(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int d = op::wrap_dim(a.integer(2), x->rank());
  TensorList parts;
  for (const Tensor& part : {a.optional_tensor(3), x, a.optional_tensor(4)})
    if (part) parts.push_back(part);
  if (parts.size() > 1) x = op::cat(r, parts, d);
  parts.clear();
  for (std::int64_t i = 0; i < a.integer(1); ++i) {
    const std::int64_t n = x->sizes[d];
    Tensor earlier = op::slice(r, x, d, 0, n - 1);  // GCC works arguments out from the last to the first
    Tensor later = op::slice(r, x, d, 1, n);
    x = op::sub(r, later, earlier);
  }
  return {x};
}

/// histc (native/cuda/SummaryOps.cu): without given ends it finds the extremes first, each with a scalar. Up to so many
/// bins the counts of a block fit into shared memory, and nothing else is made.
ValueList run_histc(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Tensor y = r.empty({a.integer(1)}, x->dtype);
  if (a.number(2) == a.number(3))
    for (int i = 0; i < 2; ++i) {
      Tensor extreme = r.empty({}, x->dtype);
      op::reduction_scratch(r, x, extreme, {}, 4);
    }
  return {y};
}

ValueList run_one_hot(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  Dims sizes = x->sizes;
  if (a.integer(1) < 0) fail_input("one_hot without a number of classes depends on the data", "aten::one_hot");
  sizes.push_back(a.integer(1));
  return {r.empty(sizes, DType::int64)};
}

/// How many entries are set is known only on the device: counted as if all were.
ValueList run_nonzero(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Bytes all = bytes_of(DType::int64, checked_mul(x->numel(), std::max(1, x->rank())));
  r.note("aten::nonzero", About::op, Evidence::assumed, "counted as if every element were set", Effect{all, all});
  Tensor count = r.empty({}, DType::int32);
  return {r.empty({x->numel(), std::max(1, x->rank())}, DType::int64)};
}

/// isin compares every element with every candidate, then reduces into the result.
ValueList run_isin(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = r.empty(x->sizes, DType::boolean);
  Dims pairs = x->sizes;
  pairs.push_back(a.tensor(1)->numel());
  Tensor equal = r.empty(pairs, DType::boolean);
  Tensor any = r.empty(x->sizes, DType::boolean);
  any.reset();
  return {y};
}

}  // namespace

void register_indexing(OpTable& t) {
  for (const char* n : {"aten::cat", "aten::concat", "aten::concatenate"}) t.add(n, "tensors, dim=0", run_cat);
  t.add("aten::gather", "self, dim, index", run_gather);
  t.add("aten::take_along_dim", "self, indices, dim", run_take_along_dim);
  t.add("aten::take", "self, index", run_take);
  t.add("aten::index_select", "self, dim, index", run_index_select);
  for (const char* n : {"aten::index.Tensor", "aten::_unsafe_index.Tensor"}) t.add(n, "self, indices", run_index);
  t.add("aten::embedding", "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False",
        [](Run& r, Args& a) -> ValueList { return {op::embedding(r, a.tensor(0), a.tensor(1))}; });
  for (const char* n : {"aten::embedding_bag", "aten::_embedding_bag"})
    t.add(n,
          "weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, "
          "include_last_offset=False",
          run_embedding_bag);
  t.add("aten::embedding_bag.padding_idx",
        "weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, "
        "padding_idx",
        run_embedding_bag);
  t.add("aten::nonzero", "self", run_nonzero, Fidelity::modelled);
  t.add("aten::diff", "self, n=1, dim=-1, prepend=None, append=None", run_diff);
  t.add("aten::histc", "self, bins=100, min=0, max=0", run_histc, Fidelity::modelled);
  t.add("aten::one_hot", "self, num_classes=-1", run_one_hot);
  t.add("aten::bucketize.Tensor", "self, boundaries",
        [](Run& r, Args& a) -> ValueList { return {r.empty(a.tensor(0)->sizes, DType::int64)}; });
  t.add("aten::searchsorted.Tensor", "sorted_sequence, self",
        [](Run& r, Args& a) -> ValueList { return {r.empty(a.tensor(1)->sizes, DType::int64)}; });
  t.add("aten::isin.Tensor_Tensor", "elements, test_elements", run_isin);
}

}  // namespace memplan
