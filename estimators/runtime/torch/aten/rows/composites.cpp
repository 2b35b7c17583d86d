// Ops that PyTorch makes of others (CompositeImplicitAutograd and the like), by the same steps.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/rows/reduced.h"
#include "estimators/runtime/torch/aten/sorting.h"

namespace memplan {

namespace {

void expect_rank(const Tensor& x, int rank, const Args& a) {
  if (x->rank() != rank)
    fail_input(fmt::format("a tensor with {} dimensions is needed", rank), std::string(a.op()),
               "the model file does not fit these shapes");
}

ValueList last_dim() { return {Value(-1)}; }

ValueList run_inner(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = a.tensor(1);
  if (x->rank() == 0 || y->rank() == 0) return {op::mul(r, x, y)};
  if (x->rank() == 1 && y->rank() == 1) return {op::dot(r, x, y)};
  return call_op(r, "aten::tensordot", {x, y, last_dim(), last_dim()});
}

/// norm_backward of what lies between the two, made again for each of them.
ValueList run_dist(Run& r, Args& a) {
  Tensor x = a.tensor(0), other = a.tensor(1), y;
  const double p = a.number(2);
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor between = op::sub(r, x, other);
    y = op::reduced(r, between, op::normalized(between, {}), false, between->dtype);
  }
  Node* node = r.record({x, other}, {y}, [p](Run& r, Node& n, TensorList& g) {
    const Tensor x = n.saved[0], other = n.saved[1], y = n.saved[2];
    const auto gradient = [&](const Tensor& between) {
      if (p == 1) {
        Tensor sign = r.empty_like(between);
        return op::mul(r, sign, g[0]);
      }
      Tensor unit = op::div(r, between, y), flat = op::pointwise(r, {y}, DType::boolean);
      return op::mul(r, g[0], unit);
    };
    TensorList out(2);
    if (n.wants(1)) {
      Tensor between = op::sub(r, x, other), turned = gradient(between);
      out[1] = op::neg(r, turned);
    }
    if (n.wants(0)) out[0] = gradient(op::sub(r, x, other));
    return out;
  });
  r.save(node, x), r.save(node, other), r.save_output(node, y);
  return {y};
}

ValueList run_vecdot(Run& r, Args& a) {
  return {op::sum(r, op::mul(r, a.tensor(0), a.tensor(1)), {a.integer(2)}, false)};
}

ValueList run_trace(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = r.empty({}, x->dtype);
  expect_rank(x, 2, a);
  r.record({x}, {y}, [from = x->sizes](Run& r, Node&, TensorList& g) {
    Tensor out = r.empty(from, g[0]->dtype), places = r.empty({std::min(from[0], from[1])}, DType::int64);
    return TensorList{out};
  });
  return {y};
}

/// A product of views in which every dimension of one stands before that of the other.
ValueList run_kron(Run& r, Args& a) {
  const Tensor x = a.tensor(0), y = a.tensor(1);
  const int rank = std::max(x->rank(), y->rank());
  Dims wide_x, wide_y, sizes;
  for (int i = 0; i < rank; ++i) {
    const int at_x = i - (rank - x->rank()), at_y = i - (rank - y->rank());
    const std::int64_t m = at_x < 0 ? 1 : x->sizes[at_x], n = at_y < 0 ? 1 : y->sizes[at_y];
    wide_x.push_back(m), wide_x.push_back(1);
    wide_y.push_back(1), wide_y.push_back(n);
    sizes.push_back(checked_mul(m, n));
  }
  return {op::unsafe_view(r, op::mul(r, op::reshape(r, x, wide_x), op::reshape(r, y, wide_y)), sizes)};
}

ValueList run_block_diag(Run& r, Args& a) {
  const TensorList parts = op::some_tensors(a);
  Dims sizes{0, 0};
  std::vector<Dims> of;
  for (const Tensor& t : parts) {
    const Dims two = t->rank() == 2 ? t->sizes : t->rank() == 1 ? Dims{1, t->sizes[0]} : Dims{1, 1};
    of.push_back(two);
    for (int i : {0, 1}) sizes[i] = checked_add(sizes[i], two[i]);
  }
  Tensor y = r.empty(sizes, op::result_type(parts));
  r.record(parts, {y}, [of](Run& r, Node& n, TensorList& g) {
    TensorList out(of.size());
    std::int64_t row = 0, column = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (n.wants(static_cast<int>(i)))
        out[i] = op::slice(r, op::slice(r, g[0], 0, row, row + of[i][0]), 1, column, column + of[i][1]);
      row += of[i][0], column += of[i][1];
    }
    return out;
  });
  return {y};
}

ValueList run_column_stack(Run& r, Args& a) {
  TensorList parts = op::some_tensors(a);
  for (Tensor& t : parts)
    if (t->rank() < 2) t = op::reshape(r, t, {t->numel(), 1});
  return {op::cat(r, parts, 1)};
}

ValueList run_split_of(Run& r, Args& a, int dim) {
  return call_op(r, a[1].is_list() ? "aten::tensor_split.indices" : "aten::tensor_split.sections",
                 {a[0], a[1], Value(a.tensor(0)->rank() == 1 ? 0 : dim)});
}

ValueList run_polar(Run& r, Args& a) {
  Tensor x = a.tensor(0), angle = a.tensor(1);
  Tensor y = op::pointwise(r, {x, angle}, x->dtype == DType::float64 ? DType::complex128 : DType::complex64);
  Node* node = r.record({x, angle}, {y}, [](Run& r, Node& n, TensorList& g) {
    // polar_backward: the conjugate of the gradient times the direction, and times the result turned by 90 degrees.
    TensorList out(2);
    for (int i = 0; i < 2; ++i) {
      if (!n.wants(i)) continue;
      Tensor direction = r.empty_like(g[0]), conjugate = r.empty_like(g[0]);
      out[i] = op::real_part(r, r.empty_like(g[0]));
    }
    return out;
  });
  r.save_output(node, y);
  return {y};
}

ValueList run_float_power(Run& r, Args& a) {
  const auto wide = [&](std::size_t i) {
    return a[i].is_tensor() ? Value(op::to(r, a.tensor(i), DType::float64)) : a[i];
  };
  Value base = wide(0), exponent = wide(1);
  const char* op = !base.is_tensor()      ? "aten::pow.Scalar"
                   : exponent.is_tensor() ? "aten::pow.Tensor_Tensor"
                                          : "aten::pow.Tensor_Scalar";
  return call_op(r, op, {base, exponent});
}

ValueList run_shift(Run& r, Args& a) {
  Value dims = a[1];
  ValueList all, by;
  if (dims.is_none()) {
    for (int i = 0; i < a.tensor(0)->rank(); ++i) all.emplace_back(i);
    dims = all;
  } else if (!dims.is_list()) {
    dims = ValueList{dims};
  }
  for (std::size_t i = 0; i < dims.list().size(); ++i) by.emplace_back(1);
  return call_op(r, "aten::roll", {a[0], by, dims});
}

ValueList run_atleast(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const int rank = a.op() == "aten::atleast_1d" ? 1 : a.op() == "aten::atleast_2d" ? 2 : 3;
  if (x->rank() >= rank) return {x};
  Dims sizes = x->sizes;
  if (rank > 1 && sizes.size() == 1) sizes.insert(0, 1);
  while (sizes.size() < rank) sizes.push_back(1);
  return {op::reshape(r, x, sizes)};
}

ValueList run_movedim(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Dims from = a.dims(1), to = a.dims(2);
  const auto unlike = [&](const Dims& dims) {
    std::set<int> once;
    for (const std::int64_t d : dims) once.insert(op::wrap_dim(d, x->rank()));
    return static_cast<int>(once.size()) != dims.size();
  };
  if (from.size() != to.size() || unlike(from) || unlike(to) || x->rank() == 0)
    fail_input("dimensions are moved twice", std::string(a.op()), "the model file does not fit these shapes");
  std::vector<int> order(static_cast<std::size_t>(x->rank()), -1);
  std::vector<bool> moved(order.size(), false);
  for (int i = 0; i < from.size(); ++i) {
    const int source = op::wrap_dim(from[i], x->rank()), place = op::wrap_dim(to[i], x->rank());
    order[static_cast<std::size_t>(place)] = source;
    moved[static_cast<std::size_t>(source)] = true;
  }
  int next = 0;
  Dims dims;
  for (int& d : order) {
    if (d < 0) {
      while (moved[static_cast<std::size_t>(next)]) ++next;
      d = next++;
    }
    dims.push_back(d);
  }
  return {op::permute(r, x, dims)};
}

ValueList run_pdist(Run& r, Args& a) {
  expect_rank(a.tensor(0), 2, a);
  Tensor x = op::contiguous(r, a.tensor(0));
  const std::int64_t n = x->sizes[0];
  Tensor y = r.empty({n < 2 ? 0 : checked_mul(n, n - 1) / 2}, x->dtype);
  Node* node = r.record({x}, {y}, [](Run& r, Node& node, TensorList&) {
    const Tensor& x = node.saved[0];
    Tensor out = r.empty_like(x),
           parts = r.empty({std::max<std::int64_t>(0, x->sizes[0] - 1), x->sizes[0], x->sizes[1]}, x->dtype);
    return TensorList{out};
  });
  r.save(node, x), r.save_output(node, y);
  return {y};
}

/// Each element of a slice is reduced with what the index brings it; the gradients are a model.
ValueList run_index_reduce(Run& r, Args& a) {
  Tensor x = a.tensor(0), source = a.tensor(3), y = r.empty_like(x);
  const int dim = op::wrap_dim(a.integer(1), x->rank());
  Node* node = r.record({x, source}, {y}, [dim](Run& r, Node& n, TensorList& g) {
    const Tensor x = n.saved[0], source = n.saved[1], index = n.saved[2], y = n.saved[3];
    Tensor taken = op::call(r, "aten::index_select", {y, dim, index});
    Tensor own = op::pointwise(r, {x, y}, x->dtype), share = op::pointwise(r, {source, taken}, x->dtype);
    Tensor count = r.empty_like(x), part = op::div(r, g[0], count);
    TensorList out{op::mul(r, own, part), {}};
    if (n.wants(1)) out[1] = op::mul(r, share, op::call(r, "aten::index_select", {part, dim, index}));
    return out;
  });
  r.save(node, x), r.save(node, source), r.save(node, a.tensor(2)), r.save_output(node, y);
  return {y};
}

/// atan2 of the parts; of numbers without an imaginary part 0 or pi.
ValueList run_angle(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool complex = is_complex(x->dtype);
  Tensor whole = complex ? r.empty_like(x) : Tensor();
  Tensor y = r.empty_like(x, x->dtype == DType::complex128 ? DType::float64 : complex ? DType::float32 : x->dtype);
  Node* node = r.record(
      {x}, {y}, [](Run& r, Node& n, TensorList&) { return TensorList{r.empty(n.inputs[0].sizes, n.inputs[0].dtype)}; });
  r.save(node, x);
  return {y};
}

/// The ends of the counts say which row comes how often.
ValueList run_repeat_counts(Run& r, Args& a) {
  Tensor x = a.tensor(0), counts = a.tensor(1);
  if (a.none(2)) x = op::flatten(r, x, 0, -1);
  const int dim = a.none(2) ? 0 : op::wrap_dim(a.integer(2), x->rank());
  if (a.none(3))
    fail_input("the size of a result depends on values", "aten::repeat_interleave.self_Tensor",
               "give output_size where the model is written");
  Tensor index;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    Tensor ends = op::call(r, "aten::cumsum", {counts, 0});
    { Tensor temp = r.scratch(scan_temp(counts->numel(), 4480)); }
    index = r.empty({a.integer(3)}, DType::int64);
  }
  return call_op(r, "aten::index_select", {x, dim, index});
}

struct Derived {
  const char *name, *schema, *derivatives;
  int operands = 1;
  Fidelity fidelity = Fidelity::exact;
};

/// One kernel forward, the formulas of derivatives.yaml backward.
constexpr Derived derived[] = {
    {"aten::linalg_cross", "self, other, dim=-1", "self: kernel(other, grad) | other: kernel(grad, self)", 2},
    {"aten::cross", "self, other, dim=None", "self: kernel(other, grad) | other: kernel(grad, self)", 2},
    {"aten::round.decimals", "self, decimals", "self: zeros_like(grad)"},
    {"aten::special_entr", "self", "self: grad * -(self.log() + 1)"},
    {"aten::special_erfcx", "self", "self: (self * 2.0 * result - 1.1283791670955126) * grad"},
    {"aten::special_i0e", "self", "self: grad * (kernel(self) - self.sgn() * result)"},
    {"aten::special_bessel_j0", "self", "self: grad * kernel(self)"},
    {"aten::special_zeta", "self, other", "self: grad * kernel(self, other)", 2, Fidelity::modelled},
    {"aten::igamma", "self, other", "other: grad * kernel(self, other)", 2, Fidelity::modelled},
    {"aten::igammac", "self, other", "other: grad * kernel(self, other)", 2, Fidelity::modelled},
    {"aten::xlogy.Scalar_Other", "self, other", "self: keep(self); grad * 2.0"},
    {"aten::copysign.Scalar", "self, other",
     "self: ratio = result / self; ratio.masked_fill_(self == 0, 0); grad * ratio"},
    {"aten::ldexp.Tensor", "self, other", "self: grad * kernel(other) | other: grad * result * 0.6931471805599453", 2,
     Fidelity::modelled},
    {"aten::renorm", "self, p, dim, maxnorm", "self: grad * kernel(self)", 1, Fidelity::modelled},
};

void add_derived_ops(OpTable& t) {
  for (const Derived& d : derived) {
    Row& row = t.add(d.name, d.schema, run_elementwise, d.fidelity);
    row.operands = d.operands;
    row.result = ResultType::floating;
    row.derivatives = Derivatives(d.derivatives);
  }
  Row& polygamma = t.add("aten::polygamma", "n, self", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(1), y = op::pointwise(r, {x}, x->dtype);
    a.row().derivatives.record(r, {{"self", x}}, {y});
    return {y};
  });
  polygamma.derivatives = Derivatives("self: grad * kernel(self)");
  t.also("aten::special_polygamma", "aten::polygamma");
  Row& outer = t.add("aten::addr", "self, vec1, vec2, beta=1, alpha=1", [](Run& r, Args& a) -> ValueList {
    Tensor x = a.tensor(0), u = a.tensor(1), v = a.tensor(2);
    Tensor y = r.empty({u->numel(), v->numel()}, op::result_type({x, u, v}));
    a.row().derivatives.record(r, {{"self", x}, {"vec1", u}, {"vec2", v}}, {y});
    return {y};
  });
  outer.derivatives = Derivatives("self: grad | vec1: grad.mv(vec2) | vec2: grad.t().mv(vec1)");
}

void add_in_place_ops(OpTable& t) {
  // They write their result into the first operand.
  for (const std::string name :
       {"eq_", "ne_", "lt_", "le_", "gt_", "ge_", "bitwise_and_", "bitwise_or_", "bitwise_xor_"})
    for (const std::string overload : {".Tensor", ".Scalar"})
      t.add("aten::" + name + overload, "self, other", [](Run&, Args& a) -> ValueList { return {a.tensor(0)}; });
  for (const char* name : {"aten::logical_and_", "aten::logical_or_", "aten::logical_xor_", "aten::logical_not_"})
    t.add(name, "self, other=None", [](Run&, Args& a) -> ValueList { return {a.tensor(0)}; });
  for (const char* name : {"aten::tril_", "aten::triu_", "aten::fill_diagonal_"}) {
    Row& row = t.add(name, "self, a=None, b=None", run_elementwise_,
                     std::string_view(name).starts_with("aten::fill") ? Fidelity::modelled : Fidelity::exact);
    row.derivatives = Derivatives("self: kernel(grad)");
  }
  Row& floored = t.add("aten::div_.Tensor_mode", "self, other, rounding_mode=None", run_elementwise_);
  floored.operands = 2;
  floored.derivatives = Derivatives("self: zeros_like(grad)");
}

}  // namespace

void register_composites(OpTable& t) {
  add_derived_ops(t);
  add_in_place_ops(t);
  t.add("aten::inner", "self, other", run_inner);
  t.add("aten::dist", "self, other, p=2", run_dist);
  t.add("aten::linalg_vecdot", "self, other, dim=-1", run_vecdot);
  t.add("aten::linalg_diagonal", "self, offset=0, dim1=-2, dim2=-1", [](Run& r, Args& a) {
    return call_op(r, "aten::diagonal", {a[0], a[1], a[2], a[3]});
  });
  t.add("aten::trace", "self", run_trace);
  t.add("aten::kron", "self, other", run_kron);
  t.add("aten::block_diag", "tensors", run_block_diag);
  t.add("aten::column_stack", "tensors", run_column_stack);
  for (const char* name : {"aten::hsplit.int", "aten::hsplit.array"})
    t.add(name, "self, sections", [](Run& r, Args& a) { return run_split_of(r, a, 1); });
  for (const char* name : {"aten::vsplit.int", "aten::vsplit.array"})
    t.add(name, "self, sections", [](Run& r, Args& a) { return run_split_of(r, a, 0); });
  for (const char* name : {"aten::dsplit.int", "aten::dsplit.array"})
    t.add(name, "self, sections", [](Run& r, Args& a) { return run_split_of(r, a, 2); });
  t.add("aten::index_reduce", "self, dim, index, source, reduce, include_self=True", run_index_reduce,
        Fidelity::modelled);
  t.add("aten::angle", "self", run_angle, Fidelity::modelled);
  t.add("aten::repeat_interleave.self_Tensor", "self, repeats, dim=None, output_size=None", run_repeat_counts);
  t.add("aten::polar", "abs, angle", run_polar);
  for (const char* name :
       {"aten::float_power.Tensor_Scalar", "aten::float_power.Tensor_Tensor", "aten::float_power.Scalar"})
    t.add(name, "self, exponent", run_float_power);
  for (const char* name : {"aten::fft_fftshift", "aten::fft_ifftshift"}) t.add(name, "self, dim=None", run_shift);
  for (const char* name : {"aten::atleast_1d", "aten::atleast_2d", "aten::atleast_3d"})
    t.add(name, "self", run_atleast);
  t.add("aten::ravel", "self", [](Run& r, Args& a) -> ValueList {
    Tensor x = op::contiguous(r, a.tensor(0));
    return {op::view(r, x, {x->numel()})};
  });
  t.add("aten::movedim.intlist", "self, source, destination", run_movedim);
  for (const char* name : {"aten::adjoint", "aten::mH", "aten::matrix_H"})
    t.add(name, "self",
          [](Run& r, Args& a) -> ValueList { return {op::transpose(r, op::conj(r, a.tensor(0)), -2, -1)}; });
  t.add("aten::pdist", "self, p=2", run_pdist);
  t.add("aten::sum_to_size", "self, size",
        [](Run& r, Args& a) -> ValueList { return {op::sum_to(r, a.tensor(0), a.dims(1))}; });
  t.add("aten::isin.Tensor_Scalar", "elements, test", [](Run& r, Args& a) -> ValueList {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    return {op::pointwise(r, {a.tensor(0)}, DType::boolean)};
  });
  t.add("aten::scatter.reduce", "self, dim, index, src, reduce",
        [](Run& r, Args& a) -> ValueList { return {op::clone(r, a.tensor(0))}; });
}

}  // namespace memplan
