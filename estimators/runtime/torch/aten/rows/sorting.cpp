// Sorting and choosing by rank (native/cuda/Sort.cpp, TensorTopK.cu, Sorting.cpp of PyTorch 2.11).
#include "estimators/runtime/torch/aten/sorting.h"

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

/// Values and int64 indices; the gradient is scattered into zeros of the input's shape.
ValueList record_chosen(Run& r, const Tensor& x, const Tensor& y, const Tensor& index) {
  Node* node = r.record(
      {x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) { return TensorList{r.empty(from, g[0]->dtype)}; });
  if (node) r.save_output(node, index);
  return {y, index};
}

ValueList two_outputs(Run& r, const Tensor& x, const Dims& sizes) {
  Tensor y = r.empty(sizes, x->dtype), index = r.empty(sizes, DType::int64);
  return record_chosen(r, x, y, index);
}

/// topk by several blocks per slice (mbtopk): where slices are few and long enough.
bool many_blocks(std::int64_t slices, std::int64_t size) {
  return (slices <= 20 && size >= 20000) || (slices > 20 && slices <= 40 && size >= 10000) ||
         (slices > 40 && slices <= 80 && size >= 8000) || (slices > 80 && slices < 200 && size >= 5000) ||
         (slices >= 200 && slices < 800 && size >= 3000) || (slices >= 800 && slices <= 4000 && size >= 800) ||
         (slices > 4000 && size >= 400);
}

ValueList run_topk(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int d = op::wrap_dim(a.integer_or(2, -1), x->rank());
  Dims sizes = x->sizes;
  if (x->rank() > 0) sizes[d] = a.integer(1);
  Tensor y = r.empty(sizes, x->dtype), index = r.empty(sizes, DType::int64);
  const Tensor dense = op::read_as(r, x);
  const std::int64_t size = x->rank() > 0 ? x->sizes[d] : 1, slices = size > 0 ? x->numel() / size : 0;
  if (many_blocks(slices, size)) {
    // Blocks of 256 threads with 4 to 64 items each, as many as the device runs at once (40 registers per thread).
    const std::int64_t resident = static_cast<std::int64_t>(r.device.multiprocessors) * 6 * 256;
    const std::int64_t items = std::clamp<std::int64_t>((x->numel() + resident - 1) / resident, 4, 64);
    const std::int64_t blocks = slices * ((size + items * 256 - 1) / (items * 256));
    const DType u8 = DType::uint8;
    Tensor values = r.empty({slices}, x->dtype), semaphores = r.empty({slices * 8}, u8),
           wanted = r.empty({slices * 8}, u8);
    Tensor counts = r.empty({blocks * 512}, u8), sums = r.empty({slices * 1024}, u8);
    Tensor within = r.empty({blocks * 4}, u8), at = r.empty({blocks * 4}, u8);
    { Tensor temp = r.scratch(scan_temp(blocks, 4096)); }
    { Tensor temp = r.scratch(scan_temp(blocks, 4096)); }
    at.reset();
    within.reset();
    sums.reset();
    counts.reset();
    wanted.reset();
    semaphores.reset();
    values.reset();
  }
  return record_chosen(r, x, y, index);
}

/// Up to 4096 items a slice is sorted in place by one block; longer ones by CUB.
ValueList sorted(Run& r, const Tensor& x, int dim) {
  Tensor y = x->on_host ? r.host(x->sizes, x->dtype) : r.empty_like(x),
         index = x->on_host ? r.host(x->sizes, DType::int64) : r.empty_like(x, DType::int64);
  const std::int64_t size = x->rank() > 0 ? x->sizes[op::wrap_dim(dim, x->rank())] : 1,
                     slices = size > 0 ? x->numel() / size : 0;
  const int bytes = bits_of(x->dtype) / 8;
  if (size > 4096 && slices > 1) {
    // One sort of everything by value, then a stable one by slice.
    const std::int64_t n = x->numel();
    Tensor pairs = r.empty({n}, DType::int64), other = r.empty({n}, DType::int64);
    {
      Tensor keys = r.empty({n}, x->dtype);
      Tensor temp = r.scratch(radix_sort_temp(r, n, bytes, 8 * bytes));
      temp.reset();
    }
    { Tensor temp = r.scratch(radix_sort_keys_temp(r, n)); }
    other.reset();
  } else {
    Tensor range = r.empty({size}, DType::int64);
    if (size > 4096) Tensor temp = r.scratch(radix_sort_temp(r, size, bytes, 8 * bytes));
  }
  return {y, index};
}

ValueList run_sort(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  ValueList out = sorted(r, x, static_cast<int>(a.integer(1)));
  return record_chosen(r, x, out[0].tensor(), out[1].tensor());
}

/// kthvalue has its k before the dimension.
ValueList run_by_dim(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const std::size_t first = a.op() == "aten::kthvalue" ? 2 : 1;
  const int d = op::wrap_dim(a.integer(first), x->rank());
  Dims sizes = x->sizes;
  if (a.boolean(first + 1))
    sizes[d] = 1;
  else
    sizes.erase(d);
  return two_outputs(r, x, sizes);
}

/// Checks of the probabilities on the device, then the exponential trick: q ~ Exp(1), argmax or topk of p / q.
ValueList run_multinomial(Run& r, Args& a) {
  Tensor p = a.tensor(0);
  const std::int64_t n = a.integer(1);
  ScopedValue<bool> no_grad(r.grad_mode, false);
  Dims sizes = p->sizes, rows = p->sizes;
  sizes[sizes.size() - 1] = n;
  rows.erase(rows.size() - 1);
  auto whole = [&] {
    Tensor t = r.empty({}, p->dtype);
    op::reduction_scratch(r, p, t, {}, 4);
    return t;
  };
  const bool together = r.profile.kernels.extremes_together;
  Tensor out = r.empty(sizes, DType::int64);
  Tensor valid, top, bottom;
  {
    top = whole();
    if (together) bottom = whole();
    Tensor below = r.empty({}, DType::boolean);
    if (!together) bottom = whole();
    Tensor above = r.empty({}, DType::boolean);
    valid = r.empty({}, DType::boolean);
    above.reset();
    if (!together) bottom.reset();
    below.reset();
    if (!together) top.reset();
  }
  Tensor any;
  {
    Tensor sums = r.empty(rows, p->dtype);
    op::reduction_scratch(r, p, sums, {p->rank() - 1}, 4);
    Tensor zero = r.empty(rows, DType::boolean);
    any = r.empty({}, DType::boolean);
    zero.reset();
  }
  { Tensor both = r.empty({}, DType::boolean); }
  Tensor q = r.empty_like(p);
  if (n > 1) Tensor best = r.empty(sizes, p->dtype);
  q.reset();
  any.reset();
  valid.reset();
  top.reset();
  bottom.reset();
  return {out};
}

}  // namespace

void register_sorting(OpTable& t) {
  t.add("aten::topk", "self, k, dim=-1, largest=True, sorted=True", run_topk);
  t.add("aten::sort", "self, dim=-1, descending=False", run_sort);
  t.add("aten::sort.stable", "self, stable, dim=-1, descending=False", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0);
    ValueList out = sorted(r, x, static_cast<int>(a.integer(2)));
    return record_chosen(r, x, out[0].tensor(), out[1].tensor());
  });
  for (const auto& [name, schema] : {std::pair{"aten::argsort", "self, dim=-1, descending=False"},
                                     {"aten::argsort.stable", "self, stable, dim=-1, descending=False"}})
    t.add(name, schema, [](Run& r, Args& a) -> ValueList {
      ScopedValue<bool> no_grad(r.grad_mode, false);
      return {sorted(r, a.tensor(0), static_cast<int>(a.integer(a.size() - 2)))[1]};
    });
  for (const char* n : {"aten::max.dim", "aten::min.dim", "aten::median.dim", "aten::mode"})
    t.add(n, "self, dim=-1, keepdim=False", run_by_dim);
  t.add("aten::kthvalue", "self, k, dim=-1, keepdim=False", run_by_dim);
  t.add("aten::multinomial", "self, num_samples, replacement=False, generator=None", run_multinomial);
}

}  // namespace memplan
