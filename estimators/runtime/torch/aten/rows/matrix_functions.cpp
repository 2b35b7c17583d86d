// Powers, exponentials, norms and chains of products of matrices (native/LinearAlgebra.cpp).
#include <cmath>
#include <functional>
#include <vector>

#include "estimators/runtime/torch/aten/rows/matrices.h"

namespace memplan {

namespace {

using linear::batch_of, linear::by_products, linear::columns_of, linear::inverse, linear::rows_of, linear::svd,
    linear::with;

/// Squarings and products (native/LinearAlgebra.cpp, linalg_matrix_power_impl).
ValueList run_power(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  std::int64_t n = a.integer(1);
  if (n < 0) {
    x = inverse(r, x, true)[0].tensor();
    n = -n;
  }
  if (n == 0) {
    Tensor y = op::clone(r, x), identity = r.empty({rows_of(x), columns_of(x)}, x->dtype);
    return {y};
  }
  if (n == 1) return {op::clone(r, x)};
  if (n == 2) return {op::matmul(r, x, x)};
  if (n == 3) return {op::matmul(r, op::matmul(r, x, x), x)};
  Tensor z, out;
  for (; n > 0; n /= 2) {
    z = z ? op::matmul(r, z, z) : x;
    if (n % 2 == 1) out = out ? op::matmul(r, out, z) : z;
  }
  return {out};
}

/// The order of products that takes the fewest multiplications.
ValueList run_multi_dot(Run& r, Args& a) {
  TensorList parts = op::some_tensors(a);
  const std::size_t n = parts.size();
  const bool row = parts.front()->rank() == 1, column = n > 1 && parts.back()->rank() == 1;
  if (row) parts.front() = op::unsqueeze(r, parts.front(), 0);
  if (column) parts.back() = op::unsqueeze(r, parts.back(), 1);
  for (const Tensor& t : parts) linear::expect_matrix(t->sizes);
  std::vector<double> sizes{static_cast<double>(parts[0]->sizes[0])};
  for (const Tensor& t : parts) sizes.push_back(static_cast<double>(t->sizes[1]));
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<std::size_t>> cut(n, std::vector<std::size_t>(n, 0));
  for (std::size_t length = 1; length < n; ++length)
    for (std::size_t i = 0; i + length < n; ++i) {
      const std::size_t j = i + length;
      cost[i][j] = -1;
      for (std::size_t k = i; k < j; ++k) {
        const double c = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
        if (cost[i][j] < 0 || c < cost[i][j]) cost[i][j] = c, cut[i][j] = k;
      }
    }
  const std::function<Tensor(std::size_t, std::size_t)> product = [&](std::size_t i, std::size_t j) {
    if (i == j) return parts[i];
    Tensor left = product(i, cut[i][j]), right = product(cut[i][j] + 1, j);
    return op::mm(r, left, right);
  };
  Tensor y = product(0, n - 1);
  if (column) y = op::squeeze(r, y, 1);
  if (row) y = op::squeeze(r, y, 0);
  return {y};
}

/// Of the Frobenius norm a norm of vectors; else singular values, or sums of rows and columns.
ValueList run_matrix_norm(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const Value &order = a[1], dims = a[2].is_none() ? Value(ValueList{Value(-2), Value(-1)}) : a[2];
  const bool words = std::holds_alternative<std::string>(order.v);
  const std::string word = words ? std::get<std::string>(order.v) : "";
  if (order.is_none() || word == "fro") return call_op(r, "aten::linalg_vector_norm", {x, 2, dims, a[3], a[4]});
  const double p = words ? 0 : std::abs(to_double(order, "aten::linalg_matrix_norm"));
  if (word == "nuc" || p == 2) {
    Tensor s = svd(r, x, false, true)[0].tensor();
    if (word == "nuc") return call_op(r, "aten::sum.dim_IntList", {s, ValueList{Value(-1)}, a[3]});
    return call_op(r, "aten::amax", {s, ValueList{Value(-1)}, a[3]});
  }
  const Dims d = to_dims(dims, "aten::linalg_matrix_norm");
  if (d.size() != 2)
    fail_input("a norm of matrices has two dimensions", "aten::linalg_matrix_norm",
               "the model file does not fit these shapes");
  Tensor sums = op::call(r, "aten::linalg_vector_norm", {x, 1, ValueList{Value(p == 1 ? d[0] : d[1])}, a[3]});
  return call_op(r, "aten::amax", {sums, ValueList{Value(-1)}, a[3]});
}

/// pinv by singular values, whose gradient is made of products with the result.
ValueList run_pinv(Run& r, Args& a) {
  Tensor x = a.tensor(0), y;
  {
    ScopedValue<bool> no_grad(r.grad_mode, false);
    ValueList parts = svd(r, x, false, false);
    Tensor scaled = r.empty_like(parts[0].tensor());
    y = r.empty(with(batch_of(x), {columns_of(x), rows_of(x)}), x->dtype);
  }
  Node* node = r.record({x}, {y}, by_products(13));
  r.save(node, x), r.save_output(node, y);
  return {y};
}

/// What one squaring of a matrix exponential works in.
void square(Run& r, const Dims& sizes, DType dtype) {
  Tensor product = r.empty(sizes, dtype), powers = r.empty(with(sizes, {2}), dtype), last = r.empty(sizes, dtype);
}

/// By scaling and squaring; backward of a matrix of twice the size.
ValueList run_exp(Run& r, Args& a) {
  Tensor x = a.tensor(0), y = r.empty(x->sizes, x->dtype);
  square(r, x->sizes, x->dtype);
  Node* node = r.record({x}, {y}, [](Run& r, Node& n, TensorList&) {
    const InputMeta& of = n.inputs[0];
    const Dims four = with(of.sizes, {4});
    {
      Tensor whole = r.empty(four, of.dtype), result = r.empty(four, of.dtype);
      square(r, four, of.dtype);
    }
    return TensorList{r.empty(of.sizes, of.dtype)};
  });
  r.save(node, x);
  return {y};
}

}  // namespace

void register_matrix_functions(OpTable& t) {
  t.add("aten::matrix_power", "self, n", run_power);
  t.add("aten::linalg_multi_dot", "tensors", run_multi_dot);
  for (const char* name : {"aten::linalg_matrix_norm", "aten::linalg_matrix_norm.str_ord", "aten::linalg_norm.ord_str"})
    t.add(name, "self, ord=None, dim=None, keepdim=False, dtype=None", run_matrix_norm, Fidelity::modelled);
  for (const char* name :
       {"aten::linalg_pinv", "aten::linalg_pinv.atol_rtol_float", "aten::linalg_pinv.atol_rtol_tensor"})
    t.add(name, "self, atol=None, rtol=None, hermitian=False", run_pinv, Fidelity::modelled);
  t.add("aten::linalg_matrix_exp", "self", run_exp, Fidelity::modelled);
}

}  // namespace memplan
