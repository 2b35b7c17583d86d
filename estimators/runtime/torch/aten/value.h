// What a call of the tape works on: tensors, numbers, lists. Also the access to a call's arguments by position,
// with the defaults of the op's schema filled in.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "estimators/runtime/torch/aten/tensor.h"

namespace memplan {

struct Row;
struct Value;
using ValueList = std::vector<Value>;

struct Value {
  std::variant<std::monostate, Tensor, std::int64_t, double, bool, std::string, DType, ValueList> v;

  Value() = default;
  Value(Tensor t) : v(std::move(t)) {}
  Value(std::int64_t n) : v(n) {}
  Value(int n) : v(static_cast<std::int64_t>(n)) {}
  Value(double d) : v(d) {}
  Value(bool b) : v(b) {}
  Value(std::string s) : v(std::move(s)) {}
  Value(DType d) : v(d) {}
  Value(ValueList l) : v(std::move(l)) {}

  bool is_none() const { return std::holds_alternative<std::monostate>(v); }
  bool is_tensor() const { return std::holds_alternative<Tensor>(v); }
  bool is_number() const { return v.index() == 2 || v.index() == 3 || v.index() == 4; }
  bool is_list() const { return std::holds_alternative<ValueList>(v); }
  const Tensor& tensor() const { return std::get<Tensor>(v); }
  const ValueList& list() const { return std::get<ValueList>(v); }
};

/// Converts; Failure(input) naming `what` where the value has another type.
std::int64_t to_int(const Value& v, std::string_view what);
double to_double(const Value& v, std::string_view what);
bool to_bool(const Value& v, std::string_view what);
Dims to_dims(const Value& v, std::string_view what);
std::vector<std::int64_t> to_ints(const Value& v, std::string_view what);

/// The arguments of one call, in the order of the schema.
class Args {
 public:
  Args(const Row& row, std::vector<Value> values);
  /// The last argument goes first, as autocast's copies do.
  ~Args() {
    while (!values_.empty()) values_.pop_back();
  }

  std::size_t size() const { return values_.size(); }
  const Value& operator[](std::size_t i) const;
  Value& operator[](std::size_t i) { return values_[i]; }
  std::string_view op() const { return op_; }
  const Row& row() const { return *row_; }  ///< of the op that was called

  Tensor tensor(std::size_t i) const;           ///< must be there
  Tensor optional_tensor(std::size_t i) const;  ///< null when None
  std::int64_t integer(std::size_t i) const { return to_int((*this)[i], op_); }
  std::int64_t integer_or(std::size_t i, std::int64_t d) const { return (*this)[i].is_none() ? d : integer(i); }
  double number(std::size_t i) const { return to_double((*this)[i], op_); }
  bool boolean(std::size_t i) const { return to_bool((*this)[i], op_); }
  Dims dims(std::size_t i) const { return to_dims((*this)[i], op_); }
  /// A list of ints that is not the dimensions of a tensor, and may be longer.
  std::vector<std::int64_t> integers(std::size_t i) const { return to_ints((*this)[i], op_); }
  /// A list of ints where one number stands for all `n` (convolution strides).
  Dims dims_n(std::size_t i, int n) const;
  bool none(std::size_t i) const { return (*this)[i].is_none(); }
  TensorList tensors(std::size_t i) const;        ///< list of tensors, null for None entries
  std::vector<DType> dtype(std::size_t i) const;  ///< zero or one entry
  /// A tensor in the dtype's place stands for its dtype (`dtype=x.dtype`).
  DType dtype_or(std::size_t i, DType d) const {
    return none(i) ? d : (*this)[i].is_tensor() ? tensor(i)->dtype : std::get<DType>((*this)[i].v);
  }
  std::string string_or(std::size_t i, std::string d) const;

 private:
  const Row* row_;
  std::string_view op_;
  std::vector<Value> values_;
};

}  // namespace memplan
