// Sums, differences, products and quotients: the element-wise ops that the rest is made of.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {
namespace op {

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
/// mul_tensor_backward: one product, cast back where promotion made the gradient wider. Of complex numbers it is one
/// with other.conj(), whose real parts are the gradient of a real factor (handle_r_to_c).
Tensor mul_back(Run& r, const Tensor& g, const Tensor& other, DType of) {
  const bool conjugate = is_complex(other->dtype) && !other->on_host;
  Tensor product = pointwise(r, {g, conjugate ? conj(r, other) : other}, result_type({g, other}));
  return is_complex(product->dtype) && !is_complex(of) ? real_part(r, product) : product;
}
}  // namespace

Tensor mul(Run& r, const Tensor& a, const Tensor& b) {
  Tensor y = pointwise(r, {a, b}, result_type({a, b}));
  Node* node = r.record({a, b}, {y}, [](Run& r, Node& n, TensorList& g) {
    // saved: [other if self wants a gradient], [self if other wants one]. The generated code computes the gradients
    // in the alphabetical order of the formulas' names: other, then self.
    TensorList out(2);
    if (n.wants(1)) out[1] = mul_back(r, g[0], n.saved.back(), n.inputs[1].dtype);
    if (n.wants(0)) out[0] = mul_back(r, g[0], n.saved.front(), n.inputs[0].dtype);
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

}  // namespace op

namespace {

Tensor operand(Run& r, const Args& a, std::size_t i) {
  if (a[i].is_tensor() || a[i].is_none()) return a.tensor(i);  // an operand that is missing is an error
  Tensor n = op::number(r, std::holds_alternative<double>(a[i].v));
  if (const auto* text = std::get_if<std::string>(&a[i].v); text && *text == "as_complex") n->dtype = DType::complex64;
  return n;
}

using Binary = Tensor (*)(Run&, const Tensor&, const Tensor&);

/// A factor alpha on `other` changes only its gradient, which it multiplies.
template <Binary f>
ValueList run_binary(Run& r, Args& a) {
  if (a.size() > 2 && a[2].is_number() && a.number(2) != 1) return run_elementwise(r, a);
  return {f(r, operand(r, a, 0), operand(r, a, 1))};
}

template <Binary f>
ValueList run_rbinary(Run& r, Args& a) {
  return {f(r, operand(r, a, 1), operand(r, a, 0))};
}

/// torch.div(a, b, out=c), which autograd refuses to record: nothing is made.
ValueList run_binary_out(Run&, Args& a) { return {a.tensor(2)}; }

void add_binary(OpTable& t, std::initializer_list<const char*> names, const char* schema, Kernel kernel,
                const char* derivatives) {
  for (const char* n : names) {
    Row& row = t.add(n, schema, kernel);
    row.operands = 2;
    row.derivatives = Derivatives(derivatives);
  }
}

}  // namespace

void register_arithmetic(OpTable& t) {
  const char* alpha = "self, other, alpha=1";
  const char *sum = "self: grad | other: maybe_multiply(grad, alpha)",
             *difference = "self: grad | other: maybe_multiply(-grad, alpha)";
  const char *product = "self: grad * other | other: grad * self",
             *quotient = "self: grad / other | other: -grad * ((self / other) / other)";
  add_binary(t, {"aten::add.Tensor", "aten::add.Scalar", "aten::add"}, alpha, run_binary<op::add>, sum);
  add_binary(t, {"aten::sub.Tensor", "aten::sub.Scalar", "aten::sub", "aten::subtract.Tensor"}, alpha,
             run_binary<op::sub>, difference);
  add_binary(t, {"aten::mul.Tensor", "aten::mul.Scalar", "aten::mul", "aten::multiply.Tensor"}, "self, other",
             run_binary<op::mul>, product);
  add_binary(t, {"aten::div.Tensor", "aten::div.Scalar", "aten::div", "aten::true_divide.Tensor"}, "self, other",
             run_binary<op::div>, quotient);
  for (const char* n : {"aten::rsub.Scalar", "aten::rsub.Tensor"}) t.add(n, alpha, run_rbinary<op::sub>);
  add_binary(t, {"aten::add_.Tensor", "aten::add_.Scalar"}, alpha, run_elementwise_, sum);
  add_binary(t, {"aten::sub_.Tensor", "aten::sub_.Scalar"}, alpha, run_elementwise_, difference);
  add_binary(t, {"aten::mul_.Tensor", "aten::mul_.Scalar"}, "self, other", run_elementwise_, product);
  add_binary(t, {"aten::div_.Tensor", "aten::div_.Scalar"}, "self, other", run_elementwise_, quotient);
  for (const char* n : {"aten::add.out", "aten::sub.out", "aten::mul.out", "aten::div.out"})
    t.add(n, "self, other, out", run_binary_out);
  t.add("aten::neg", "self", [](Run& r, Args& a) -> ValueList { return {op::neg(r, a.tensor(0))}; });
  Row& neg = t.add("aten::neg_", "self", run_elementwise_);
  neg.derivatives = Derivatives("self: -grad");
}

}  // namespace memplan
