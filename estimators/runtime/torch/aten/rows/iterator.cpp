// The output of CUDA's element-wise kernels: TensorIterator's shape, type promotion and layout of PyTorch 2.11.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/stride_order.h"

namespace memplan {
namespace op {

Dims broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& other = a.size() >= b.size() ? b : a;
  Dims out = longer;
  const int shift = longer.size() - other.size();
  for (int i = 0; i < other.size(); ++i) {
    std::int64_t& n = out[i + shift];
    if (n == other[i] || other[i] == 1) continue;
    if (n != 1)
      fail_input(fmt::format("tensors of [{}] and [{}] do not broadcast", fmt::join(a, ", "), fmt::join(b, ", ")), {},
                 "the model may fix a dimension that you changed");
    n = other[i];
  }
  return out;
}

namespace {

/// Strides of an operand as TensorIterator sees them: 0 where it is broadcast.
std::int64_t seen_stride(const TensorBody& t, int rank, int dim) {
  const int d = dim - (rank - t.rank());
  if (d < 0 || t.sizes[d] == 1) return 0;
  return t.strides[d];
}

template <class List>
Tensor iterate(Run& r, const List& inputs, DType dtype) {
  bool device = false, first = true, same = true, all_contiguous = true, all_channels_last = true;
  const TensorBody* lead = nullptr;
  Dims sizes;
  for (const Tensor& t : inputs) {
    if (!t->on_host) device = true;
    sizes = first ? t->sizes : broadcast(sizes, t->sizes);
    first = false;
  }
  if (!device) return r.host(sizes, dtype);
  // Kernels read no conjugates (ATen/ConjugateFallback.cpp): each becomes a copy for as long as the op takes.
  TensorList resolved;
  for (const Tensor& t : inputs)
    if (t->conjugated && is_complex(t->dtype) && !t->on_host) resolved.push_back(r.empty_like(t));
  for (const Tensor& t : inputs) {
    if (t->wrapped_number || (t->on_host && t->rank() == 0)) {
      same = same && sizes.empty();
      continue;
    }
    if (!(t->sizes == sizes)) same = false;
    all_contiguous = all_contiguous && is_contiguous(*t);
    all_channels_last = all_channels_last && is_channels_last(*t);
    if (!lead) lead = t.get();
  }
  // A scalar operand does not spoil the fast set-up only when every operand has the same shape; TensorIterator then
  // falls back to sorting dimensions by stride, which gives the same layout for dense operands.
  if (same && lead) {
    if (all_contiguous) return r.empty(sizes, dtype);
    if (all_channels_last) return r.empty_strided(sizes, channels_last_strides(sizes), dtype);
  }
  // reorder_dimensions (aten/src/ATen/TensorIterator.cpp): sort by ascending stride, ambiguous dims stay.
  const int rank = sizes.size();
  std::vector<int> order = reversed_dims(rank);
  sort_by_stride(order, [&](int a, int b) {
    for (const Tensor& t : inputs) {
      if (t->on_host) continue;
      const auto sa = seen_stride(*t, rank, a), sb = seen_stride(*t, rank, b);
      if (sa == 0 || sb == 0) continue;
      if (sa < sb) return -1;
      if (sa > sb) return 1;
      if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
  });
  return r.empty_strided(sizes, dense_strides(sizes, order), dtype);
}

template <class List>
DType promoted(const List& inputs) {
  // ResultTypeState (aten/src/ATen/native/TypeProperties.cpp): dimensioned tensors, then 0-dim ones, then numbers.
  std::optional<DType> dim, zero, wrapped;
  auto join = [](std::optional<DType>& s, DType d) { s = s ? promote(*s, d) : d; };
  for (const Tensor& t : inputs) {
    if (!t) continue;
    if (t->wrapped_number)
      join(wrapped, t->dtype);
    else if (t->rank() == 0)
      join(zero, t->dtype);
    else
      join(dim, t->dtype);
  }
  auto category = [](DType d) { return is_complex(d) ? 3 : is_floating(d) ? 2 : d == DType::boolean ? 0 : 1; };
  auto combine = [&](std::optional<DType> high, std::optional<DType> low) {
    if (!high) return low;
    if (low && category(*low) > category(*high)) return std::optional(promote(*high, *low));
    return high;
  };
  auto result = combine(dim, combine(zero, wrapped));
  return result.value_or(DType::float32);
}

}  // namespace

Tensor pointwise(Run& r, std::initializer_list<Tensor> inputs, DType dtype) { return iterate(r, inputs, dtype); }
Tensor pointwise(Run& r, const TensorList& inputs, DType dtype) { return iterate(r, inputs, dtype); }
DType result_type(std::initializer_list<Tensor> inputs) { return promoted(inputs); }
DType result_type(const TensorList& inputs) { return promoted(inputs); }

Tensor number(Run& r, bool floating) {
  Tensor n = r.host({}, floating ? DType::float32 : DType::int64);
  n->wrapped_number = true;
  return n;
}

Tensor unary(Run& r, const Tensor& x, DType dtype, bool save_input, bool save_result,
             std::function<Tensor(Run&, const Tensor&, const Tensor&)> backward) {
  Tensor y = pointwise(r, {x}, dtype);
  Node* node = r.record({x}, {y}, [backward = std::move(backward)](Run& r, Node& n, TensorList& g) {
    return TensorList{backward(r, g[0], n.saved.empty() ? Tensor() : n.saved[0])};
  });
  if (save_input) r.save(node, x);
  if (save_result) r.save_output(node, y);
  return y;
}

}  // namespace op
}  // namespace memplan
