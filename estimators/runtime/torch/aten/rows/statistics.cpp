// Variances, standard deviations and norms.
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/rows/reduced.h"

namespace memplan {

namespace {

using reduced::add_derived;
using reduced::reduction_constants;

/// var, std and their pairs with the mean, all by Welford's algorithm (16 bytes per partial result).
ValueList variance(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool by_dim = a.size() > 2;
  const Dims dims = by_dim ? reduced::dims_of(x, a, 1) : op::normalized(x, {});
  const bool keep = by_dim && a.boolean(3);
  const bool pair = a.op().find("_mean") != std::string_view::npos;
  Tensor y = r.empty(op::reduced_sizes(x, dims, keep), x->dtype);
  Tensor m = pair ? r.empty(op::reduced_sizes(x, dims, keep), x->dtype) : Tensor();
  op::reduction_scratch(r, x, y, dims, 16);
  a.row().derivatives.record(r, {{"self", x}}, pair ? TensorList{y, m} : TensorList{y},
                             reduction_constants(x, dims, keep));
  if (pair) return {y, m};
  return {y};
}

ValueList run_norm(Run& r, Args& a) {
  Tensor x = a.tensor(0);
  const bool by_dim = a.size() > 2;
  const Dims dims = by_dim ? reduced::dims_of(x, a, 2) : op::normalized(x, {});
  const bool keep = by_dim && a.boolean(3);
  auto dtype = by_dim && a.size() > 4 ? reduced::dtype_of(a, 4) : std::nullopt;
  Tensor y = op::reduced(r, x, dims, keep, dtype.value_or(x->dtype));
  // Over all elements the result has no dimensions and gets none back, so that it does not widen what it meets.
  const bool over_all = !by_dim || a[2].is_none() || (a[2].is_list() && a[2].list().empty());
  Bindings b = reduction_constants(x, dims, keep || over_all);
  b.set("p", a[1].is_none() ? 2.0 : a.number(1));
  a.row().derivatives.record(r, {{"self", x}}, {y}, std::move(b));
  return {y};
}

constexpr const char* var_formula =
    "self: (scale * restore_reduced_dims(grad, dim, keepdim, rank)) * (self - self.mean(dim, true_))";
constexpr const char* std_formula =
    "self: grad_var = (grad / (result * 2)).masked_fill_(result == 0, 0); (scale * restore_reduced_dims(grad_var, dim, "
    "keepdim, rank)) * (self - self.mean(dim, true_))";
constexpr const char* var_mean_formula =
    "self: gvar = defined(grad0) ? (scale * restore_reduced_dims(grad0, dim, keepdim, rank)) * (self - self.mean(dim, "
    "true_)) : none; "
    "gmean = defined(grad1) ? restore_reduced_dims(grad1, dim, keepdim, rank).expand_like(self) / 2 : none; "
    "defined(gvar) & defined(gmean) ? gvar + gmean : defined(gvar) ? gvar : gmean";
constexpr const char* std_mean_formula =
    "self: gstd = defined(grad0) ? (grad0 / (result0 * 2)).masked_fill_(result0 == 0, 0) : none; "
    "gvar = defined(grad0) ? (scale * restore_reduced_dims(gstd, dim, keepdim, rank)) * (self - self.mean(dim, true_)) "
    ": none; "
    "gmean = defined(grad1) ? restore_reduced_dims(grad1, dim, keepdim, rank).expand_like(self) / 2 : none; "
    "defined(gvar) & defined(gmean) ? gvar + gmean : defined(gvar) ? gvar : gmean";
/// norm_backward by the order of the norm: 1, 2, and others from 2 up.
constexpr const char* norm_formula =
    "self: g = restore_reduced_dims(grad, dim, keepdim, rank); norm = restore_reduced_dims(result, dim, keepdim, "
    "rank); "
    "scaled = p > 2 ? self * self.abs().pow_(p - 2) : none; share = p > 2 ? g / norm.pow(p - 1) : none; p > 2 ? "
    "share.masked_fill_(norm == 0, 0) : 0; "
    "p == 1 ? self.sgn() * g : p == 2 ? g * (self / norm).masked_fill_(norm == 0, 0) : scaled * share";

}  // namespace

void register_statistics(OpTable& t) {
  const char *correction = "self, dim=None, correction=None, keepdim=False",
             *unbiased = "self, dim, unbiased=True, keepdim=False";
  add_derived(t, {"aten::var.correction"}, correction, variance, var_formula);
  add_derived(t, {"aten::std.correction"}, correction, variance, std_formula);
  add_derived(t, {"aten::var.dim"}, unbiased, variance, var_formula);
  add_derived(t, {"aten::std.dim"}, unbiased, variance, std_formula);
  add_derived(t, {"aten::var"}, "self, unbiased=True", variance, var_formula);
  add_derived(t, {"aten::std"}, "self, unbiased=True", variance, std_formula);
  add_derived(t, {"aten::var_mean.correction"}, correction, variance, var_mean_formula);
  add_derived(t, {"aten::std_mean.correction"}, correction, variance, std_mean_formula);
  add_derived(t, {"aten::var_mean"}, "self, unbiased=True", variance, var_mean_formula);
  add_derived(t, {"aten::std_mean"}, "self, unbiased=True", variance, std_mean_formula);
  add_derived(t, {"aten::var_mean.dim"}, unbiased, variance, var_mean_formula);
  add_derived(t, {"aten::std_mean.dim"}, unbiased, variance, std_mean_formula);
  // Of matrices with an order of their own it takes singular values: LinearAlgebra.cpp, linalg_norm.
  add_derived(t, {"aten::linalg_norm"}, "self, ord=None, dim=None, keepdim=False, dtype=None", run_norm, norm_formula);
  add_derived(t, {"aten::linalg_vector_norm"}, "self, ord=2, dim=None, keepdim=False, dtype=None", run_norm,
              norm_formula);
  add_derived(t, {"aten::norm.ScalarOpt_dim"}, "self, p, dim, keepdim=False", run_norm, norm_formula);
  add_derived(t, {"aten::norm.Scalar"}, "self, p=2", run_norm, norm_formula);
}

}  // namespace memplan
