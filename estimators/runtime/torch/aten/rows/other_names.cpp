// Names that PyTorch gives an op beside its own (native_functions.yaml: "alias of", and composites that only call it).
#include <string>

#include "estimators/runtime/torch/aten/op_table.h"

namespace memplan {

namespace {

constexpr std::pair<std::string_view, std::string_view> alike[] = {
    {"aten::special_expit", "aten::sigmoid"},
    {"aten::special_erf", "aten::erf"},
    {"aten::special_erfc", "aten::erfc"},
    {"aten::special_erfinv", "aten::erfinv"},
    {"aten::special_exp2", "aten::exp2"},
    {"aten::special_expm1", "aten::expm1"},
    {"aten::special_log1p", "aten::log1p"},
    {"aten::special_logit", "aten::logit"},
    {"aten::special_round", "aten::round"},
    {"aten::special_digamma", "aten::digamma"},
    {"aten::special_psi", "aten::digamma"},
    {"aten::special_gammaln", "aten::lgamma"},
    {"aten::special_sinc", "aten::sinc"},
    {"aten::special_softmax", "aten::softmax.int"},
    {"aten::special_log_softmax", "aten::log_softmax.int"},
    {"aten::special_logsumexp", "aten::logsumexp"},
    {"aten::special_xlogy", "aten::xlogy.Tensor"},
    {"aten::arctan2", "aten::atan2"},
    {"aten::clip.Tensor", "aten::clamp.Tensor"},
    {"aten::divide.Tensor_mode", "aten::div.Tensor_mode"},
    {"aten::divide.Scalar_mode", "aten::div.Scalar_mode"},
    {"aten::moveaxis.int", "aten::movedim.int"},
    {"aten::moveaxis.intlist", "aten::movedim.intlist"},
    {"aten::linalg_matmul", "aten::matmul"},
    {"aten::vdot", "aten::dot"},
    {"aten::nanmedian.dim", "aten::median.dim"},
    {"aten::nanmedian", "aten::median"},
    {"aten::det", "aten::linalg_det"},
    {"aten::slogdet", "aten::linalg_slogdet"},
    {"aten::inverse", "aten::linalg_inv"},
    {"aten::pinverse", "aten::linalg_pinv"},
    {"aten::qr", "aten::linalg_qr"},
    {"aten::matrix_exp", "aten::linalg_matrix_exp"},
    {"aten::linalg_matrix_power", "aten::matrix_power"},
    {"aten::chain_matmul", "aten::linalg_multi_dot"},
    // In place, of a tensor that nobody else reads by its old shape: the same as the view.
    {"aten::unsqueeze_", "aten::unsqueeze"},
    {"aten::squeeze_", "aten::squeeze"},
    {"aten::squeeze_.dim", "aten::squeeze.dim"},
    {"aten::transpose_", "aten::transpose.int"},
    {"aten::swapaxes_", "aten::transpose.int"},
    {"aten::swapdims_", "aten::transpose.int"},
    {"aten::t_", "aten::t"},
};

/// In and out of place.
constexpr std::pair<std::string_view, std::string_view> unary[] = {
    {"absolute", "abs"},  {"negative", "neg"},  {"arccos", "acos"},   {"arcsin", "asin"}, {"arctan", "atan"},
    {"arccosh", "acosh"}, {"arcsinh", "asinh"}, {"arctanh", "atanh"}, {"fix", "trunc"},
};

/// Likewise, of tensors and of numbers.
constexpr std::pair<std::string_view, std::string_view> binary[] = {
    {"multiply", "mul"}, {"divide", "div"},       {"subtract", "sub"},  {"true_divide", "div"}, {"greater", "gt"},
    {"less", "lt"},      {"greater_equal", "ge"}, {"less_equal", "le"}, {"not_equal", "ne"},
};

}  // namespace

void register_other_names(OpTable& t) {
  for (const auto& [name, row] : alike) t.also(name, row);
  for (const std::string in_place : {"", "_"}) {
    for (const auto& [name, row] : unary)
      t.also("aten::" + std::string(name) + in_place, "aten::" + std::string(row) + in_place);
    for (const auto& [name, row] : binary)
      for (const std::string overload : {".Tensor", ".Scalar"})
        t.also("aten::" + std::string(name) + in_place + overload, "aten::" + std::string(row) + in_place + overload);
  }
}

}  // namespace memplan
