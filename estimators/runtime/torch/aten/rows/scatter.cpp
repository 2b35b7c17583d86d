// Writing into parts of a tensor by index (native/TensorAdvancedIndexing.cpp, native/cuda/Indexing.cu).
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/sorting.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

/// A copy of self (or self itself, in place) into which one kernel writes; the rest is in the row's derivatives.
ValueList run_write(Run& r, Args& a) {
  const Row& row = a.row();
  Tensor x = a.tensor(0);
  std::vector<std::pair<std::string_view, Tensor>> inputs;
  for (std::size_t i = 0; i < row.arguments.size(); ++i)
    if (a[i].is_tensor()) inputs.emplace_back(row.arguments[i], a.tensor(i));
  const std::string_view base = std::string_view(row.name).substr(0, row.name.find('.'));
  if (base.back() == '_') {
    row.derivatives.record_in_place(r, inputs, constants_of(row, a));
    return {x};
  }
  Tensor y = r.empty_like(x);
  row.derivatives.record(r, inputs, {y}, constants_of(row, a));
  return {y};
}

void add_write(OpTable& t, std::initializer_list<const char*> names, const char* schema, const char* derivatives) {
  for (const char* n : names) t.add(n, schema, run_write).derivatives = Derivatives(derivatives);
}

/// The indices in one shape, as copies where their strides differ (CUDA wants them alike).
Dims index_shape(const TensorList& indices) {
  Dims shape;
  bool first = true;
  for (const Tensor& i : indices)
    if (i) {
      shape = first ? i->sizes : op::broadcast(shape, i->sizes);
      first = false;
    }
  return shape;
}

Tensor indexed(Run& r, const Tensor& x, const TensorList& indices) {
  ValueList list;
  for (const Tensor& i : indices) list.push_back(i ? Value(i) : Value());
  return call_op(r, "aten::index.Tensor", {x, Value(std::move(list))})[0].tensor();
}

/// index_put: `accumulate` sorts the indices, after checking their range by reading back the extremes.
ValueList run_index_put(Run& r, Args& a) {
  Tensor x = a.tensor(0), values = a.tensor(2);
  const TensorList indices = a.tensors(1);
  const bool accumulate = a.boolean(3), in_place = a.op().back() == '_';
  // One number where a mask is set is masked_fill; else the entries of the mask are counted on the device and numbered.
  for (const Tensor& i : indices)
    if (i && (i->dtype == DType::boolean || i->dtype == DType::uint8) && !(values->on_host && values->rank() == 0)) {
      const Bytes all = bytes_of(DType::int64, checked_mul(i->numel(), std::max(1, i->rank())));
      r.note(a.op(), About::op, Evidence::assumed, "writing where a mask is set: the positions are not counted",
             Effect{Bytes(), all});
    }
  Tensor y = in_place ? x : r.empty_like(x);
  if (accumulate) {
    std::int64_t limit = 1;
    int count = 0;
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (indices[i]) {
        ++count;
        limit *= x->sizes[static_cast<int>(i)];
        const bool together = r.profile.kernels.extremes_together;
        Tensor extremes[2];
        for (int k = 0; k < 2; ++k) {
          extremes[k] = r.empty({}, DType::int64);
          op::reduction_scratch(r, indices[i], extremes[k], {}, 8);
          if (together) continue;
          { Tensor outside = r.empty({}, DType::boolean); }
          extremes[k].reset();
        }
        for (int k = 0; together && k < 2; ++k) Tensor outside = r.empty({}, DType::boolean);
        for (Tensor& extreme : extremes) extreme.reset();
      }
    op::sort_linear_indices(r, index_shape(indices).product(), count, limit);
  }
  auto back = [accumulate](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) {
      if (accumulate) {
        out[0] = g[0];
      } else {
        Tensor nothing = r.empty(n.inputs[1].sizes, g[0]->dtype);
        out[0] = op::clone(r, g[0]);
      }
    }
    if (n.wants(1)) out[1] = indexed(r, g[0], n.saved);
    return out;
  };
  Node* node = in_place ? r.record({x, values}, {}, back) : r.record({x, values}, {y}, back);
  if (node)
    for (const Tensor& i : indices) node->saved.push_back(i);
  if (in_place) r.rebase(x, node);
  return {y};
}

/// The source's elements go where the mask is set, numbered by a prefix sum. How many gradients the source gets is
/// known only on the device: they are counted as its full size.
ValueList run_masked_scatter(Run& r, Args& a) {
  Tensor x = a.tensor(0), mask = a.tensor(1), source = a.tensor(2);
  Tensor y = op::pointwise(r, {x, mask}, x->dtype);
  {
    Tensor positions = r.empty(y->sizes, DType::int64);
    Tensor temp = r.scratch(scan_temp(y->numel(), 4480));
    temp.reset();
  }
  Node* node = r.record({x, source}, {y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    if (n.wants(0)) out[0] = op::pointwise(r, {g[0], n.saved[0]}, g[0]->dtype);
    if (n.wants(1)) {
      Tensor selected = r.empty(n.inputs[1].sizes, g[0]->dtype);
      out[1] = r.empty(n.inputs[1].sizes, g[0]->dtype);
    }
    return out;
  });
  r.save(node, mask);
  return {y};
}

}  // namespace

namespace op {

void sort_linear_indices(Run& r, std::int64_t n, int indices, std::int64_t limit) {
  sort_linear_indices(r, n, indices, limit, Tensor());
}

void sort_linear_indices(Run& r, std::int64_t n, int indices, std::int64_t limit, const Tensor& values) {
  // Each index is wrapped and multiplied by its stride, then added to the first one's.
  Tensor linear;
  for (int i = 0; i < indices; ++i) {
    Tensor wrapped = r.empty({n}, DType::int64);
    Tensor product = r.empty({n}, DType::int64);
    wrapped.reset();
    if (i == 0) linear = std::move(product);
  }
  Tensor dense = values ? contiguous(r, values) : Tensor();
  Tensor sorted = r.empty({n}, DType::int64), origin = r.empty({n}, DType::int64);
  {
    Tensor range = r.empty({n}, DType::int64);
    std::int64_t bits = 1;
    for (std::int64_t m = limit; m > 1; m >>= 1) ++bits;
    Tensor temp = r.scratch(radix_sort_temp(r, n, 8, bits));
    temp.reset();
  }
  origin.reset();
  sorted.reset();
}

// CopyBackwards (torch/csrc/autograd/functions/tensor.cpp): the former value gets zeros, src its part in its own type.
// The engine reduces what src gets.
Tensor copy_(Run& r, const Tensor& self, const Tensor& src) {
  r.rebase(self, r.record({self, src}, {}, [](Run& r, Node& n, TensorList& g) {
    return TensorList{n.wants(0) ? r.empty(g[0]->sizes, g[0]->dtype) : Tensor(),
                      n.wants(1) ? op::to(r, g[0], n.inputs[1].dtype) : Tensor()};
  }));
  return self;
}

}  // namespace op

void register_scatter(OpTable& t) {
  add_write(t, {"aten::scatter.src", "aten::scatter_.src"}, "self, dim, index, src",
            "self: grad.scatter(dim, index, 0) | src: grad.gather(dim, index)");
  add_write(t, {"aten::scatter.value", "aten::scatter_.value"}, "self, dim, index, value",
            "self: grad.scatter(dim, index, 0)");
  add_write(t, {"aten::scatter_add", "aten::scatter_add_"}, "self, dim, index, src",
            "self: grad | src: grad.gather(dim, index)");
  add_write(t, {"aten::scatter_reduce.two", "aten::scatter_reduce_.two"},
            "self, dim, index, src, reduce, include_self=True",
            "self, src: keep(self, src, result); {grad, grad.gather(dim, index)}");
  for (const char* n : {"aten::scatter_reduce.two", "aten::scatter_reduce_.two"})
    const_cast<Row*>(t.find(n))->fidelity = Fidelity::modelled;
  add_write(t, {"aten::index_add", "aten::index_add_"}, "self, dim, index, source, alpha=1",
            "self: grad | source: maybe_multiply(grad.index_select(dim, index).expand_like(source), alpha)");
  add_write(t, {"aten::index_copy", "aten::index_copy_"}, "self, dim, index, source",
            "self: grad.index_fill(dim, index, 0) | source: grad.index_select(dim, index).expand_like(source)");
  add_write(t, {"aten::index_fill.int_Scalar", "aten::index_fill_.int_Scalar"}, "self, dim, index, value",
            "self: grad.index_fill(dim, index, 0)");
  for (const char* n : {"aten::index_put", "aten::_unsafe_index_put", "aten::index_put_"})
    t.add(n, "self, indices, values, accumulate=False", run_index_put);
  t.add("aten::masked_scatter", "self, mask, source", run_masked_scatter, Fidelity::modelled);
  t.add("aten::copy_", "self, src, non_blocking=False",
        [](Run& r, Args& a) -> ValueList { return {op::copy_(r, a.tensor(0), a.tensor(1))}; });
}

}  // namespace memplan
