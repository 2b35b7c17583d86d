// Values of a TorchScript program while it runs on paper.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "estimators/frontends/torch_export/program.h"
#include "estimators/runtime/torch/aten/tensor.h"

namespace memplan::torchscript {

struct V;

/// A tensor: its name in the program that is being written, and its sizes.
struct TensorV {
  torch_export::NameId name = -1;
  Tensor tensor;
  std::shared_ptr<const V> number;  ///< of constants of one element
};
using ListV = std::shared_ptr<std::vector<V>>;  ///< shared, as Python's lists are
struct TupleV {
  std::vector<V> items;
};
using DictV = std::shared_ptr<std::vector<std::pair<V, V>>>;
struct DeviceV {
  std::string name;
};
struct ObjectV {
  std::string class_name;
  std::shared_ptr<std::map<std::string, V>> attributes;
};
/// A number or condition that only the data decide.
struct UnknownV {
  std::string why;
};

struct V {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorV, ListV, TupleV, DictV, DeviceV, ObjectV,
               UnknownV>
      v;

  V() = default;
  template <class T>
  V(T value) : v(std::move(value)) {}
  V(const char* text) : v(std::string(text)) {}

  template <class T>
  const T* get() const {
    return std::get_if<T>(&v);
  }
  bool is_none() const { return v.index() == 0; }
  const TensorV* tensor() const { return get<TensorV>(); }
  /// A Python number, or a constant tensor that holds one.
  const V* number() const;
  std::optional<std::int64_t> integer() const;
  std::optional<double> real() const;
  std::optional<bool> truth() const;  ///< bool(x) where it is known
};

V make_list(std::vector<V> items);
bool equal(const V& a, const V& b);

/// Operators and built-in functions of Python on numbers, strings, lists, dictionaries and None: "aten::add",
/// "aten::__getitem__", "prim::min" (without overload). None for any other op and for operands with a tensor.
std::optional<V> python_op(std::string_view op, const std::vector<V>& args);

}  // namespace memplan::torchscript
