#include "estimators/frontends/onnx/result_sizes.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <set>

namespace memplan::onnx_format {

namespace {

bool broadcasts_to(const Sizes& x, const Sizes& y) {
  if (x.size() > y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const std::int64_t n = x[x.size() - 1 - i]; n != 1 && n != y[y.size() - 1 - i]) return false;
  return true;
}

/// Queries, keys, values and perhaps a mask of every query and key. Heads of keys may be fewer than those of queries.
bool attends(const std::vector<Sizes>& x, const Sizes& y) {
  if (x.size() < 3 || std::ranges::any_of(x, [](const Sizes& s) { return s.size() > 4; })) return false;
  const Sizes &q = x[0], &k = x[1], &v = x[2];
  const std::size_t rank = q.size();
  if (rank < 2 || k.size() != rank || v.size() != rank || y.size() != rank) return false;
  if (q.back() != k.back() || k[rank - 2] != v[rank - 2]) return false;
  Sizes weights = q, result = q;
  weights.back() = k[rank - 2];
  result.back() = v.back();
  return result == y && (x.size() == 3 || broadcasts_to(x[3], weights));
}

/// Indices broadcast to one block of dimensions; a mask stands for as many as it has.
bool indexes(const std::vector<Sizes>& x, const Sizes& y) {
  std::size_t rank = 0;
  for (std::size_t i = 1; i < x.size(); ++i) rank = std::max(rank, x[i].size());
  const std::size_t indices = x.size() - 1, data = x[0].size();
  return y.size() + indices == data + rank || (indices == 1 && y.size() + rank == data + 1);
}

/// The result has the sizes of the first tensor.
bool keeps_sizes(std::string_view op) {
  static const std::set<std::string_view> ops{"aten::slice_scatter",
                                              "aten::select_scatter",
                                              "aten::diagonal_scatter",
                                              "aten::index_put",
                                              "aten::index_add",
                                              "aten::index_copy",
                                              "aten::index_fill",
                                              "aten::scatter",
                                              "aten::scatter_add",
                                              "aten::masked_fill",
                                              "aten::softmax",
                                              "aten::log_softmax",
                                              "aten::layer_norm",
                                              "aten::rms_norm",
                                              "aten::group_norm",
                                              "aten::dropout",
                                              "aten::clone",
                                              "aten::contiguous",
                                              "aten::detach",
                                              "aten::detach_copy",
                                              "aten::_to_copy",
                                              "aten::type_as",
                                              "aten::gelu",
                                              "aten::relu",
                                              "aten::silu",
                                              "aten::sigmoid",
                                              "aten::tanh",
                                              "aten::hardswish",
                                              "aten::hardsigmoid",
                                              "aten::leaky_relu",
                                              "aten::elu",
                                              "aten::softplus",
                                              "aten::erf",
                                              "aten::exp",
                                              "aten::log",
                                              "aten::sqrt",
                                              "aten::rsqrt",
                                              "aten::reciprocal",
                                              "aten::sin",
                                              "aten::cos",
                                              "aten::neg",
                                              "aten::abs",
                                              "aten::cumsum",
                                              "aten::flip",
                                              "aten::roll",
                                              "aten::tril",
                                              "aten::triu",
                                              "aten::zeros_like",
                                              "aten::ones_like",
                                              "aten::full_like",
                                              "aten::logical_not",
                                              "aten::bitwise_not"};
  return ops.contains(op);
}

/// The result has the sizes that all tensors broadcast to.
bool broadcasts(std::string_view op) {
  static const std::set<std::string_view> ops{
      "aten::add",         "aten::sub",          "aten::mul",     "aten::div",         "aten::pow",
      "aten::remainder",   "aten::floor_divide", "aten::maximum", "aten::minimum",     "aten::clamp",
      "aten::where",       "aten::eq",           "aten::ne",      "aten::lt",          "aten::le",
      "aten::gt",          "aten::ge",           "aten::expand",  "aten::bitwise_and", "aten::bitwise_or",
      "aten::logical_and", "aten::logical_or"};
  return ops.contains(op);
}

}  // namespace

std::optional<bool> gives(std::string_view op, const std::vector<Sizes>& x, const Sizes& y) {
  op = op.substr(0, op.find('.'));
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, op) != names.end();
  };
  const Sizes& first = x.front();
  if (is({"aten::view", "aten::_unsafe_view", "aten::reshape", "aten::unsqueeze", "aten::squeeze"}))
    return count_of(first) == count_of(y);
  if (is({"aten::transpose", "aten::permute", "aten::t"})) return std::ranges::is_permutation(first, y);
  if (is({"aten::select"})) return first.size() == y.size() + 1;
  if (is({"aten::slice"})) return first.size() == y.size() && std::ranges::equal(y, first, std::less_equal{});
  if (is({"aten::index"})) return indexes(x, y);
  if (is({"aten::cat"})) return std::ranges::all_of(x, [&](const Sizes& s) { return s.size() == y.size(); });
  if (is({"aten::linear"})) return x.size() > 1 && !first.empty() && !x[1].empty() && first.back() == x[1].back();
  if (is({"aten::matmul", "aten::bmm"}))
    return x.size() == 2 && first.size() > 1 && x[1].size() > 1 && first.back() == x[1][x[1].size() - 2];
  if (is({"aten::scaled_dot_product_attention"})) return attends(x, y);
  if (is({"aten::embedding"}))
    return x.size() == 2 && first.size() == 2 && y.size() == x[1].size() + 1 && y.back() == first.back();
  // The file has complex numbers as pairs of real ones.
  if (is({"aten::abs", "aten::angle", "aten::real", "aten::imag"}) && first.size() == y.size() + 1 && first.back() == 2)
    return std::equal(y.begin(), y.end(), first.begin());
  if (is({"aten::_to_copy"}) && y.size() == first.size() + 1 && y.back() == 2)
    return std::equal(first.begin(), first.end(), y.begin());
  if (keeps_sizes(op)) return first == y;
  if (broadcasts(op)) return std::ranges::all_of(x, [&](const Sizes& s) { return broadcasts_to(s, y); });
  return std::nullopt;
}

bool gives_sizes(std::string_view op) {
  for (std::string_view o : {"aten::view", "aten::_unsafe_view", "aten::reshape", "aten::expand", "aten::new_zeros",
                             "aten::new_ones", "aten::new_empty", "aten::new_full", "aten::zeros", "aten::ones",
                             "aten::full", "aten::rand", "aten::randn", "aten::empty.memory_format"})
    if (op == o) return true;
  return false;
}

}  // namespace memplan::onnx_format
