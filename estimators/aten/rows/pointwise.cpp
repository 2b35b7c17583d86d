// Element-wise ops. Forward: one TensorIterator output. What autograd keeps and which temporaries the backward
// formula makes follow derivatives.yaml and FunctionsManual.cpp of PyTorch 2.11 (data/aten/derivatives-2.11.json).
#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

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
    if (n != 1) fail_input("two tensors do not broadcast", {}, "the model may fix a dimension that you changed");
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
  std::vector<int> order;
  for (int i = rank - 1; i >= 0; --i) order.push_back(i);
  auto should_swap = [&](int a, int b) {
    for (const Tensor& t : inputs) {
      if (t->on_host) continue;
      const auto sa = seen_stride(*t, rank, a), sb = seen_stride(*t, rank, b);
      if (sa == 0 || sb == 0) continue;
      if (sa < sb) return -1;
      if (sa > sb) return 1;
      if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
  };
  for (int i = 1; i < rank; ++i) {
    int d1 = i;
    for (int d0 = i - 1; d0 >= 0; --d0) {
      const int c = should_swap(order[d0], order[d1]);
      if (c > 0) {
        std::swap(order[d0], order[d1]);
        d1 = d0;
      } else if (c < 0) {
        break;
      }
    }
  }
  Dims strides = Dims::filled(rank, 1);
  std::int64_t step = 1;
  for (int d : order) {
    strides[d] = step;
    step = checked_mul(step, std::max<std::int64_t>(sizes[d], 1));
  }
  return r.empty_strided(sizes, strides, dtype);
}

template <class List>
DType promoted(const List& inputs) {
  // ResultTypeState (aten/src/ATen/native/TypeProperties.cpp): dimensioned tensors, then 0-dim ones, then numbers.
  std::optional<DType> dim, zero, wrapped;
  auto join = [](std::optional<DType>& s, DType d) { s = s ? promote(*s, d) : d; };
  for (const Tensor& t : inputs) {
    if (!t) continue;
    if (t->wrapped_number) join(wrapped, t->dtype);
    else if (t->rank() == 0) join(zero, t->dtype);
    else join(dim, t->dtype);
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

Tensor add(Run& r, const Tensor& a, const Tensor& b) {
  Tensor y = pointwise(r, {a, b}, result_type({a, b}));
  r.record({a, b}, {y}, [](Run&, Node& n, TensorList& g) {
    return TensorList{n.wants(0) ? g[0] : Tensor(), n.wants(1) ? g[0] : Tensor()};
  });
  return y;
}

Tensor add_(Run& r, const Tensor& self, const Tensor& other) {
  Node* node = r.record({self, other}, {}, [](Run&, Node& n, TensorList& g) {
    return TensorList{n.wants(0) ? g[0] : Tensor(), n.wants(1) ? g[0] : Tensor()};
  });
  r.rebase(self, node);
  return self;
}

Tensor sub(Run& r, const Tensor& a, const Tensor& b) {
  Tensor y = pointwise(r, {a, b}, result_type({a, b}));
  r.record({a, b}, {y}, [](Run& r, Node& n, TensorList& g) {
    return TensorList{n.wants(0) ? g[0] : Tensor(), n.wants(1) ? neg(r, g[0]) : Tensor()};
  });
  return y;
}

Tensor neg(Run& r, const Tensor& x) {
  return unary(r, x, x->dtype, false, false, [](Run& r, const Tensor& g, const Tensor&) { return neg(r, g); });
}

namespace {
/// mul_tensor_backward: one product, cast back where promotion made the gradient wider.
Tensor mul_back(Run& r, const Tensor& g, const Tensor& other) { return pointwise(r, {g, other}, result_type({g, other})); }
}  // namespace

Tensor mul(Run& r, const Tensor& a, const Tensor& b) {
  Tensor y = pointwise(r, {a, b}, result_type({a, b}));
  Node* node = r.record({a, b}, {y}, [](Run& r, Node& n, TensorList& g) {
    // saved: [other if self wants a gradient], [self if other wants one]. The generated code computes the gradients
    // in the alphabetical order of the formulas' names: other, then self.
    TensorList out(2);
    if (n.wants(1)) out[1] = mul_back(r, g[0], n.saved.back());
    if (n.wants(0)) out[0] = mul_back(r, g[0], n.saved.front());
    return out;
  });
  if (node) {
    if (node->wants(0)) r.save(node, b);
    if (node->wants(1)) r.save(node, a);
  }
  return y;
}

Tensor mul_number(Run& r, const Tensor& x) { return mul(r, x, number(r, true)); }
Tensor div_number(Run& r, const Tensor& x) { return div(r, x, number(r, true)); }
Tensor add_number(Run& r, const Tensor& x) { return add(r, x, number(r, true)); }

Tensor div(Run& r, const Tensor& a, const Tensor& b) {
  DType dtype = result_type({a, b});
  if (!is_floating(dtype) && !is_complex(dtype)) dtype = DType::float32;
  Tensor y = pointwise(r, {a, b}, dtype);
  Node* node = r.record({a, b}, {y}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    const Tensor& other = n.saved[0];
    if (n.wants(1)) {
      // div_tensor_other_grad: -grad * ((self / other) / other)
      Tensor minus = neg(r, g[0]);
      Tensor q = pointwise(r, {n.saved[1], other}, g[0]->dtype);
      Tensor qq = pointwise(r, {q, other}, g[0]->dtype);
      out[1] = pointwise(r, {minus, qq}, g[0]->dtype);
    }
    if (n.wants(0)) out[0] = pointwise(r, {g[0], other}, g[0]->dtype);  // grad / other
    return out;
  });
  if (node) {
    r.save(node, b);
    if (node->wants(1)) r.save(node, a);
  }
  return y;
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

namespace {

using op::pointwise;

/// How a backward formula spends memory, in the order of its evaluation.
enum class Back : std::uint8_t {
  kernel,       ///< one fused kernel: grad_input only (relu's threshold_backward, silu_backward …)
  product,      ///< grad * f(x) with f an op: f's tensor, then the product
  product2,     ///< grad * f(g(x)): two temporaries one after the other, then the product
  zeros,        ///< zeros_like(grad)
  chain_rsqrt,  ///< -0.5 * grad * result.pow(3)
  quotient,     ///< grad / f(result): f's tensor, then the quotient
};

struct Unary {
  const char* name;
  bool save_input, save_result;
  Back back;
  bool to_float = true;   ///< integers give floats
};

// Saved sets: derivatives.yaml. Kernels: Functions.cpp as generated from it.
constexpr Unary unaries[] = {
    {"relu", false, true, Back::kernel, false},     {"gelu", true, false, Back::kernel},
    {"silu", true, false, Back::kernel},            {"mish", true, false, Back::kernel},
    {"hardswish", true, false, Back::kernel},       {"hardsigmoid", true, false, Back::kernel},
    {"hardtanh", true, false, Back::kernel, false}, {"leaky_relu", true, false, Back::kernel},
    {"elu", true, false, Back::kernel},             {"celu", true, false, Back::kernel},
    {"softplus", true, false, Back::kernel},        {"softshrink", true, false, Back::kernel},
    {"hardshrink", true, false, Back::kernel},      {"threshold", true, false, Back::kernel, false},
    {"logit", true, false, Back::kernel},           {"sigmoid", false, true, Back::kernel},
    {"tanh", false, true, Back::kernel},            {"exp", false, true, Back::kernel},
    {"log", true, false, Back::kernel},             {"sqrt", false, true, Back::quotient},
    {"rsqrt", false, true, Back::chain_rsqrt},      {"reciprocal", false, true, Back::product2},
    {"sin", true, false, Back::product},            {"cos", true, false, Back::product2},
    {"tan", false, true, Back::product2},           {"abs", true, false, Back::product, false},
    {"erf", true, false, Back::product2},           {"erfc", true, false, Back::product2},
    {"log2", true, false, Back::product},           {"log10", true, false, Back::product},
    {"log1p", true, false, Back::product},          {"expm1", false, true, Back::product},
    {"exp2", false, true, Back::product},           {"sinh", true, false, Back::product},
    {"cosh", true, false, Back::product},           {"asin", true, false, Back::product2},
    {"acos", true, false, Back::product2},          {"atan", true, false, Back::product2},
    {"asinh", true, false, Back::product2},         {"acosh", true, false, Back::product2},
    {"atanh", true, false, Back::product2},         {"erfinv", true, false, Back::product2},
    {"floor", false, false, Back::zeros, false},    {"ceil", false, false, Back::zeros, false},
    {"round", false, false, Back::zeros, false},    {"trunc", false, false, Back::zeros, false},
    {"sign", false, false, Back::zeros, false},     {"sgn", false, false, Back::zeros, false},
    {"nan_to_num", true, false, Back::product, false}, {"digamma", true, false, Back::product},
    {"lgamma", true, false, Back::product},         {"sinc", true, false, Back::product2},
    {"i0", true, false, Back::product},             {"deg2rad", false, false, Back::kernel},
    {"rad2deg", false, false, Back::kernel},        {"positive", false, false, Back::kernel, false},
};

Tensor run_back(Run& r, Back back, const Tensor& g) {
  const DType d = g->dtype;
  switch (back) {
    case Back::kernel:
    case Back::zeros: return pointwise(r, {g}, d);
    case Back::product:
    case Back::quotient: {
      Tensor f = pointwise(r, {g}, d);
      return pointwise(r, {g, f}, d);
    }
    case Back::product2: {
      // C++ keeps every temporary of an expression until its end.
      Tensor inner = pointwise(r, {g}, d);
      Tensor f = pointwise(r, {inner}, d);
      return pointwise(r, {g, f}, d);
    }
    case Back::chain_rsqrt: {
      Tensor cube = pointwise(r, {g}, d);
      Tensor half = pointwise(r, {g}, d);
      return pointwise(r, {half, cube}, d);
    }
  }
  return {};
}

const Unary* unary_row(std::string_view op) {
  op.remove_prefix(6);
  if (!op.empty() && op.back() == '_') op.remove_suffix(1);
  for (const Unary& u : unaries)
    if (op == u.name) return &u;
  return nullptr;
}

DType unary_dtype(const Unary& u, const Tensor& x) {
  return u.to_float && !is_floating(x->dtype) && !is_complex(x->dtype) ? DType::float32 : x->dtype;
}

ValueList run_unary(Run& r, Args& a) {
  const Unary& u = *unary_row(a.op());
  Tensor x = a.tensor(0);
  return {op::unary(r, x, unary_dtype(u, x), u.save_input, u.save_result,
                    [back = u.back](Run& r, const Tensor& g, const Tensor&) { return run_back(r, back, g); })};
}

/// x.op_(): no output; a formula that needs the input makes autograd clone it first (gen_variable_type.py).
ValueList run_unary_(Run& r, Args& a) {
  const Unary& u = *unary_row(a.op());
  Tensor x = a.tensor(0);
  // leaky_relu_, elu_ and celu_ have formulas of their own that use the result.
  const std::string_view name = u.name;
  const bool by_result = u.save_result || name == "leaky_relu" || name == "elu" || name == "celu" || name == "threshold";
  Tensor kept;
  if (r.needs_grad(x) && u.save_input && !by_result) {
    Restore<bool> no_grad(r.grad_mode, false);
    kept = op::clone(r, x);
  }
  Node* node = r.record({x}, {}, [back = u.back](Run& r, Node&, TensorList& g) { return TensorList{run_back(r, back, g[0])}; });
  if (kept) r.save(node, kept);
  else if (by_result) r.save_output(node, x);
  r.rebase(x, node);
  return {x};
}

/// A tensor operand, or a Python number as PyTorch wraps it.
Tensor operand(Run& r, const Args& a, std::size_t i) {
  if (a[i].is_tensor()) return a[i].tensor();
  return op::number(r, std::holds_alternative<double>(a[i].v));
}

using Binary = Tensor (*)(Run&, const Tensor&, const Tensor&);

template <Binary f>
ValueList run_binary(Run& r, Args& a) {
  return {f(r, operand(r, a, 0), operand(r, a, 1))};
}

template <Binary f>
ValueList run_rbinary(Run& r, Args& a) {
  return {f(r, operand(r, a, 1), operand(r, a, 0))};
}

/// self.op_(other) where the formula keeps nothing of self: add_, sub_.
ValueList run_add_(Run& r, Args& a) { return {op::add_(r, a.tensor(0), operand(r, a, 1))}; }

ValueList run_mul_(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = operand(r, a, 1);
  Tensor kept;
  if (r.needs_grad(y)) {
    Restore<bool> no_grad(r.grad_mode, false);
    kept = op::clone(r, x);
  }
  Node* node = r.record({x, y}, {}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    std::size_t at = 0;
    if (n.wants(0)) out[0] = pointwise(r, {g[0], n.saved[at++]}, g[0]->dtype);
    if (n.wants(1)) out[1] = pointwise(r, {g[0], n.saved[at++]}, g[0]->dtype);
    return out;
  });
  if (node) {
    if (node->wants(0)) r.save(node, y);
    if (node->wants(1)) r.save(node, kept);
  }
  r.rebase(x, node);
  return {x};
}

/// Both operands kept, gradient of each is one mask product (maximum, minimum, atan2 …).
ValueList run_both_saved(Run& r, Args& a) {
  Tensor x = operand(r, a, 0), y = operand(r, a, 1);
  DType d = op::result_type({x, y});
  Tensor out = pointwise(r, {x, y}, d);
  Node* node = r.record({x, y}, {out}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    for (int i = 0; i < 2; ++i)
      if (n.wants(i)) {
        Tensor mask = pointwise(r, {n.saved[0], n.saved[1]}, DType::boolean);
        out[i] = pointwise(r, {g[0], mask}, g[0]->dtype);
      }
    return out;
  });
  r.save(node, x);
  r.save(node, y);
  return {out};
}

ValueList run_compare(Run& r, Args& a) { return {pointwise(r, {operand(r, a, 0), operand(r, a, 1)}, DType::boolean)}; }
ValueList run_predicate(Run& r, Args& a) { return {pointwise(r, {a.tensor(0)}, DType::boolean)}; }
ValueList run_bits(Run& r, Args& a) {
  Tensor x = operand(r, a, 0), y = operand(r, a, 1);
  return {pointwise(r, {x, y}, op::result_type({x, y}))};
}

/// pow(x, n): keeps x; pow_backward = grad * (n * x.pow(n - 1)).
ValueList run_pow_number(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const double n = a.number(1);
  const DType d = op::result_type({x, operand(r, a, 1)});
  return {op::unary(r, x, d, true, false, [n](Run& r, const Tensor& g, const Tensor& x) {
    if (n == 0.0) return r.empty_like(x);
    Tensor power = pointwise(r, {x}, x->dtype);
    Tensor scaled = pointwise(r, {power}, power->dtype);
    return pointwise(r, {g, scaled}, g->dtype);
  })};
}

ValueList run_pow_tensor(Run& r, Args& a) {
  Tensor x = operand(r, a, 0), y = operand(r, a, 1);
  Tensor out = pointwise(r, {x, y}, op::result_type({x, y}));
  Node* node = r.record({x, y}, {out}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    for (int i = 0; i < 2; ++i)
      if (n.wants(i)) out[i] = run_back(r, Back::product2, g[0]);
    return out;
  });
  r.save(node, x);
  r.save(node, y);
  r.save_output(node, out);
  return {out};
}

/// clamp with numbers: keeps x; where(mask, grad, 0) with the mask made of two comparisons.
ValueList run_clamp(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool both = a.size() > 2 && !a.none(1) && !a.none(2);
  return {op::unary(r, x, x->dtype, true, false, [both](Run& r, const Tensor& g, const Tensor& x) {
    // where(self >= min [logical_and_ self <= max], grad, zero): the zero is a scalar on the device.
    Tensor zero = r.empty({}, g->dtype);
    Tensor mask = pointwise(r, {x}, DType::boolean);
    Tensor upper = both ? pointwise(r, {x}, DType::boolean) : Tensor();
    return pointwise(r, {mask, g}, g->dtype);
  })};
}

ValueList run_where(Run& r, Args& a) {
  Tensor c = a.tensor(0), x = operand(r, a, 1), y = operand(r, a, 2);
  const DType d = op::result_type({x, y});
  Tensor out = pointwise(r, {c, x, y}, d);
  Node* node = r.record({x, y}, {out}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    // where(condition, grad, 0) and where(condition, 0, grad), `other` first: the zero is a scalar on the device.
    for (int i = 1; i >= 0; --i)
      if (n.wants(i)) {
        Tensor zero = r.empty({}, g[0]->dtype);
        out[i] = pointwise(r, {n.saved[0], g[0]}, g[0]->dtype);
      }
    return out;
  });
  r.save(node, c);
  return {out};
}

/// masked_fill keeps the mask (not broadcast); the gradient is masked_fill(grad, mask, 0).
ValueList run_masked_fill(Run& r, Args& a) {
  Tensor x = a.tensor(0), mask = a.tensor(1);
  Tensor out = pointwise(r, {x, mask}, x->dtype);
  Node* node = r.record({x}, {out}, [](Run& r, Node& n, TensorList& g) {
    return TensorList{pointwise(r, {g[0], n.saved[0]}, g[0]->dtype)};
  });
  r.save(node, mask);
  return {out};
}

/// addcmul / addcdiv: self + value * t1 (*|/) t2.
ValueList run_addc(Run& r, Args& a) {
  Tensor x = a.tensor(0), u = a.tensor(1), v = a.tensor(2);
  Tensor out = pointwise(r, {x, u, v}, op::result_type({x, u, v}));
  Node* node = r.record({x, u, v}, {out}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(3);
    if (n.wants(0)) out[0] = g[0];
    for (int i = 1; i < 3; ++i)
      if (n.wants(i)) out[i] = run_back(r, Back::product, g[0]);
    return out;
  });
  if (node && node->wants(1)) r.save(node, v);
  if (node && node->wants(2)) r.save(node, u);
  return {out};
}

ValueList run_lerp(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = a.tensor(1);
  Tensor out = pointwise(r, {x, y}, x->dtype);
  r.record({x, y}, {out}, [](Run& r, Node& n, TensorList& g) {
    TensorList out(2);
    for (int i = 0; i < 2; ++i)
      if (n.wants(i)) out[i] = pointwise(r, {g[0]}, g[0]->dtype);
    return out;
  });
  return {out};
}

/// Ops whose result follows the input and which change nothing else (dropout in eval, in-place fills …).
ValueList run_identity(Run&, Args& a) { return {a[0]}; }

}  // namespace

void register_pointwise(Registry& t) {
  for (const Unary& u : unaries) {
    const char* schema = "self, a=None, b=None, c=None, approximate=None";
    t.add(std::string("aten::") + u.name, schema, run_unary);
    t.add(std::string("aten::") + u.name + "_", schema, run_unary_);
  }
  t.add("aten::relu6", "self", [](Run& r, Args& a) -> ValueList {
    return call_op(r, *registry().find("aten::hardtanh"), {a[0]}, {});
  });
  t.add("aten::relu6_", "self", [](Run& r, Args& a) -> ValueList {
    return call_op(r, *registry().find("aten::hardtanh_"), {a[0]}, {});
  });
  t.add("aten::neg", "self", [](Run& r, Args& a) -> ValueList { return {op::neg(r, a.tensor(0))}; });
  for (const char* n : {"aten::add.Tensor", "aten::add.Scalar", "aten::add"}) t.add(n, "self, other, alpha=1", run_binary<op::add>);
  for (const char* n : {"aten::sub.Tensor", "aten::sub.Scalar", "aten::sub", "aten::subtract.Tensor"}) t.add(n, "self, other, alpha=1", run_binary<op::sub>);
  for (const char* n : {"aten::mul.Tensor", "aten::mul.Scalar", "aten::mul", "aten::multiply.Tensor"}) t.add(n, "self, other", run_binary<op::mul>);
  for (const char* n : {"aten::div.Tensor", "aten::div.Scalar", "aten::div", "aten::true_divide.Tensor"}) t.add(n, "self, other", run_binary<op::div>);
  for (const char* n : {"aten::rsub.Scalar", "aten::rsub.Tensor"}) t.add(n, "self, other, alpha=1", run_rbinary<op::sub>);
  for (const char* n : {"aten::add_.Tensor", "aten::add_.Scalar", "aten::sub_.Tensor", "aten::sub_.Scalar"}) t.add(n, "self, other, alpha=1", run_add_);
  for (const char* n : {"aten::mul_.Tensor", "aten::mul_.Scalar", "aten::div_.Scalar", "aten::div_.Tensor"}) t.add(n, "self, other", run_mul_);
  for (const char* n : {"aten::maximum", "aten::minimum", "aten::fmax", "aten::fmin", "aten::atan2", "aten::logaddexp", "aten::logaddexp2",
                        "aten::max.other", "aten::min.other", "aten::hypot", "aten::xlogy.Tensor", "aten::copysign.Tensor"})
    t.add(n, "self, other", run_both_saved, Fidelity::modelled);
  for (const char* base : {"eq", "ne", "lt", "le", "gt", "ge"})
    for (const char* overload : {".Tensor", ".Scalar", ""}) t.add(std::string("aten::") + base + overload, "self, other", run_compare);
  for (const char* n : {"aten::logical_and", "aten::logical_or", "aten::logical_xor", "aten::isclose"}) t.add(n, "self, other", run_compare);
  for (const char* n : {"aten::logical_not", "aten::isnan", "aten::isinf", "aten::isfinite", "aten::signbit", "aten::isneginf", "aten::isposinf"}) t.add(n, "self", run_predicate);
  for (const char* base : {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "__and__", "__or__",
                           "floor_divide", "remainder", "fmod", "gcd", "lcm", "heaviside", "nextafter", "__xor__"})
    for (const char* overload : {".Tensor", ".Scalar", ""}) t.add(std::string("aten::") + base + overload, "self, other", run_bits, Fidelity::modelled);
  t.add("aten::div.Tensor_mode", "self, other, rounding_mode=None", [](Run& r, Args& a) -> ValueList { return run_bits(r, a); }, Fidelity::modelled);
  t.add("aten::bitwise_not", "self", [](Run& r, Args& a) -> ValueList { return {pointwise(r, {a.tensor(0)}, a.tensor(0)->dtype)}; });
  t.add("aten::pow.Tensor_Scalar", "self, exponent", run_pow_number);
  t.add("aten::square", "self, exponent=2", run_pow_number);
  for (const char* n : {"aten::pow.Tensor_Tensor", "aten::pow.Scalar"}) t.add(n, "self, exponent", run_pow_tensor, Fidelity::modelled);
  t.add("aten::clamp", "self, min=None, max=None", run_clamp);
  t.add("aten::clip", "self, min=None, max=None", run_clamp);
  for (const char* n : {"aten::clamp_min", "aten::clamp_max"}) t.add(n, "self, bound", run_clamp);
  for (const char* n : {"aten::clamp.Tensor", "aten::clamp_min.Tensor", "aten::clamp_max.Tensor"}) t.add(n, "self, min=None, max=None", run_clamp, Fidelity::modelled);
  for (const char* n : {"aten::where.self", "aten::where.ScalarSelf", "aten::where.ScalarOther", "aten::where.Scalar"}) t.add(n, "condition, self, other", run_where);
  for (const char* n : {"aten::masked_fill.Scalar", "aten::masked_fill.Tensor"}) t.add(n, "self, mask, value", run_masked_fill);
  for (const char* n : {"aten::addcmul", "aten::addcdiv"}) t.add(n, "self, tensor1, tensor2, value=1", run_addc, Fidelity::modelled);
  for (const char* n : {"aten::lerp.Scalar", "aten::lerp.Tensor"}) t.add(n, "self, end, weight", run_lerp, Fidelity::modelled);
  for (const char* n : {"aten::fill_.Scalar", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_", "aten::fill_.Tensor"}) t.add(n, "self, a=None, b=None", run_identity);
}

}  // namespace memplan
