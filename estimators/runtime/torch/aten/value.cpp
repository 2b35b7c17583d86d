#include "estimators/runtime/torch/aten/value.h"

#include <fmt/format.h>

#include <limits>

#include "estimators/base/whole_number.h"
#include "estimators/runtime/torch/aten/op_table.h"

namespace memplan {

namespace {
[[noreturn]] void wrong(std::string_view op, const char* wanted) {
  fail_input(fmt::format("an argument of {} is not {}", op, wanted), std::string(op),
             "the model file describes a call that PyTorch would refuse too");
}
}  // namespace

std::int64_t to_int(const Value& v, std::string_view what) {
  if (auto* i = std::get_if<std::int64_t>(&v.v)) return *i;
  if (auto* b = std::get_if<bool>(&v.v)) return *b;
  if (auto* d = std::get_if<double>(&v.v)) return whole_number(*d, what);
  wrong(what, "a whole number known before the run");
}

double to_double(const Value& v, std::string_view what) {
  if (auto* d = std::get_if<double>(&v.v)) return *d;
  return static_cast<double>(to_int(v, what));
}

bool to_bool(const Value& v, std::string_view what) {
  if (auto* d = std::get_if<double>(&v.v)) return *d != 0;
  return to_int(v, what) != 0;
}

Dims to_dims(const Value& v, std::string_view what) {
  if (!v.is_list()) return {to_int(v, what)};
  Dims d;
  for (const Value& x : v.list()) d.push_back(to_int(x, what));
  return d;
}

std::vector<std::int64_t> to_ints(const Value& v, std::string_view what) {
  std::vector<std::int64_t> out;
  if (!v.is_list()) return {to_int(v, what)};
  for (const Value& x : v.list()) out.push_back(to_int(x, what));
  return out;
}

Args::Args(const Row& row, std::vector<Value> values) : row_(&row), op_(row.name), values_(std::move(values)) {}

const Value& Args::operator[](std::size_t i) const {
  static const Value none;
  return i < values_.size() ? values_[i] : none;
}

Tensor Args::tensor(std::size_t i) const {
  const Value& v = (*this)[i];
  if (!v.is_tensor() || !v.tensor()) wrong(op_, "a tensor");
  return v.tensor();
}

Tensor Args::optional_tensor(std::size_t i) const {
  const Value& v = (*this)[i];
  if (v.is_none()) return {};
  return tensor(i);
}

Dims Args::dims_n(std::size_t i, int n) const {
  Dims d = dims(i);
  // Kernels take them as ints. Nothing that is made of two of them overflows.
  for (const std::int64_t number : d)
    if (std::abs(number) > std::numeric_limits<std::int32_t>::max()) wrong(op_, "a number of 32 bits");
  if (d.size() == 1 && n > 1) return Dims::filled(n, d[0]);
  if (d.size() != n) wrong(op_, "a list of the right length");
  return d;
}

TensorList Args::tensors(std::size_t i) const {
  const Value& v = (*this)[i];
  TensorList list;
  if (v.is_none()) return list;
  if (!v.is_list()) return {tensor(i)};
  for (const Value& x : v.list()) {
    if (x.is_none())
      list.emplace_back();
    else if (x.is_tensor())
      list.push_back(x.tensor());
    else
      wrong(op_, "a list of tensors");
  }
  return list;
}

std::vector<DType> Args::dtype(std::size_t i) const {
  if (auto* d = std::get_if<DType>(&(*this)[i].v)) return {*d};
  return {};
}

std::string Args::string_or(std::size_t i, std::string d) const {
  if (auto* s = std::get_if<std::string>(&(*this)[i].v)) return *s;
  return d;
}

}  // namespace memplan
