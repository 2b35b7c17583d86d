#include "estimators/runtime/torch/aten/formula_functions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "estimators/base/whole_number.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

bool real_number(const Value& v) { return std::holds_alternative<double>(v.v); }

Tensor operand(Run& r, const Value& v) { return v.is_tensor() ? v.tensor() : op::number(r, real_number(v)); }

double number_of(const Value& v) {
  if (const bool* b = std::get_if<bool>(&v.v)) return *b;
  return to_double(v, "a formula");
}

bool is_comparison(std::string_view op) {
  return op == "==" || op == "!=" || op == "<" || op == ">" || op == "<=" || op == ">=";
}

double arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  return a != 0 && b != 0;
}

/// A fused backward kernel: one output in the shape of its tensors, the type of the first.
Value kernel(Run& r, const ValueList& args) {
  TensorList tensors;
  for (const Value& v : args)
    if (v.is_tensor() && v.tensor()) tensors.push_back(v.tensor());
  return op::pointwise(r, tensors, tensors.at(0)->dtype);
}

/// restore_reduced_dims: unsqueezes what a reduction without keepdim has removed.
Tensor restore_dims(Run& r, Tensor t, const Value& dim, bool keepdim, int rank) {
  if (keepdim || rank == 0 || t->rank() == rank) return t;
  Dims dims = dim.is_none() ? Dims{} : dim.is_list() ? to_dims(dim, "a formula") : Dims{to_int(dim, "a formula")};
  if (dims.empty())
    for (int i = 0; i < rank; ++i) dims.push_back(i);
  for (auto& d : dims) d = op::wrap_dim(d, rank);
  std::sort(dims.begin(), dims.end());
  for (auto d : dims) t = op::unsqueeze(r, t, static_cast<int>(d));
  return t;
}

/// The overload that fits by PyTorch's naming; `tensors` says which arguments are tensors.
const Row* find_overload(const OpTable& table, std::string_view name, std::size_t count,
                         const std::array<bool, 4>& tensors, bool second_list) {
  const std::string base = "aten::" + std::string(name);
  std::vector<std::string> tries;
  if (name == "pow") tries = {base + (tensors[0] ? tensors[1] ? ".Tensor_Tensor" : ".Tensor_Scalar" : ".Scalar")};
  if (name == "masked_fill") tries = {base + ".Scalar"};
  if (name == "where") tries = {base + (tensors[1] ? tensors[2] ? ".self" : ".ScalarOther" : ".ScalarSelf")};
  if (name == "index_fill") tries = {base + ".int_Scalar"};
  if (name == "scatter") tries = {base + (tensors[3] ? ".src" : ".value")};
  if (name == "transpose") tries = {base + ".int"};
  if (name == "index") tries = {base + ".Tensor"};
  if ((name == "sum" || name == "mean") && count > 1) tries = {base + (name == "sum" ? ".dim_IntList" : ".dim")};
  if (tries.empty())
    tries = {base,
             base + (tensors[1]    ? ".Tensor"
                     : second_list ? ".dim_IntList"
                                   : ".Scalar"),
             base + ".int", base + ".dim"};
  for (const std::string& t : tries)
    if (const Row* row = table.find(t)) return row;
  return nullptr;
}

/// The same, looked up once per name and kind of arguments: a backward pass asks for the same few, very often.
const Row* overload(Run& r, std::string_view name, const ValueList& args) {
  std::array<bool, 4> tensors{};
  const std::size_t count = std::min(args.size(), tensors.size());
  for (std::size_t i = 0; i < count; ++i) tensors[i] = args[i].is_tensor();
  const bool second_list = args.size() > 1 && args[1].is_list();
  std::string key(name);
  key += static_cast<char>('0' + tensors[0] + 2 * tensors[1] + 4 * tensors[2] + 8 * tensors[3]);
  key += static_cast<char>('0' + second_list + 2 * (args.size() > 1));
  const auto [it, added] = r.known_overloads.try_emplace(std::move(key));
  if (added) it->second = find_overload(*r.profile.ops, name, args.size(), tensors, second_list);
  return it->second;
}

}  // namespace

Value formula_negative(Run& r, const Value& a) {
  if (a.is_tensor()) return op::neg(r, a.tensor());
  if (real_number(a)) return -std::get<double>(a.v);
  return checked_sub(0, to_int(a, "a formula"));
}

Value formula_operation(Run& r, std::string_view op, const Value& a, const Value& b) {
  if (!a.is_tensor() && !b.is_tensor()) {
    const double n = arithmetic(op, number_of(a), number_of(b));
    if (is_comparison(op) || op == "&") return n != 0;
    return n;
  }
  const Tensor x = operand(r, a), y = operand(r, b);
  if (is_comparison(op) || op == "&") return op::pointwise(r, {x, y}, DType::boolean);
  if (op == "+") return op::add(r, x, y);
  if (op == "-") return op::sub(r, x, y);
  if (op == "*") return op::mul(r, x, y);
  return op::div(r, x, y);
}

Value formula_call(Run& r, std::string_view name, ValueList& args) {
  if (args.empty()) fail(ErrorKind::internal, "a formula calls " + std::string(name) + " on nothing");
  if (name == "conj" || name == "resolve_conj") return args[0];
  if (name == "kernel") return kernel(r, args);  // a function that no formula needs by name
  if (name == "kernel_number") return 1.0;       // log(base)
  if (name == "sqrt" && !args[0].is_tensor()) return std::sqrt(number_of(args[0]));
  // zeros({}, x.options()), scalar_tensor(0., x.options())
  if (name == "scalar_like") return r.empty({}, args[0].tensor()->dtype);
  // grad.to(self.scalar_type())
  if (name == "to") return op::to(r, args[0].tensor(), std::get<DType>(args[1].v));
  if (name == "to_type_of") return op::to(r, args[0].tensor(), args[1].tensor()->dtype);
  if (name == "maybe_multiply") return number_of(args[1]) == 1 ? args[0] : formula_operation(r, "*", args[0], args[1]);
  if (name == "restore_reduced_dims")
    return restore_dims(r, args[0].tensor(), args[1], to_bool(args[2], "keepdim"),
                        static_cast<int>(to_int(args[3], "rank")));
  if (name == "power_of_two") {  // pow(2, x): the base is made a tensor on the device after the result
    Tensor y = r.empty_like(args[0].tensor());
    { Tensor base = r.empty({}, DType::float64); }
    return y;
  }
  if (name == "keep") return {};  // read only so that it is kept
  if (name == "zeros_of") return r.empty(args[0].tensor()->sizes, args[0].tensor()->dtype);
  if (name == "defined") return args[0].is_tensor() && args[0].tensor();
  if (name == "scale_grad_by_count") {
    // (grad / mask.sum(dims, keepdim)) * mask
    const Dims dims = to_dims(args[2], "a formula");
    Tensor count = op::sum(r, args[1].tensor(), dims, true);
    Tensor share = op::div(r, args[0].tensor(), count);
    return op::mul(r, args[1].tensor(), share);
  }
  if (name == "dim") return static_cast<std::int64_t>(args[0].tensor()->rank());
  if (name == "numel") return args[0].tensor()->numel();
  if (name == "batched_like")
    return op::expand(r, op::unsqueeze(r, args[0].tensor(), 0),
                      {args[1].tensor()->sizes[0], args[0].tensor()->sizes[0], args[0].tensor()->sizes[1]});
  if (name == "expand_like") return op::expand(r, args[0].tensor(), args[1].tensor()->sizes);
  if (name == "new_zeros_like") return r.empty(args[1].tensor()->sizes, args[0].tensor()->dtype);
  if (name.ends_with("_")) return args[0];
  if (const Row* row = overload(r, name, args)) {
    ValueList out = call_op(r, *row, args, {});
    return out.at(0);
  }
  if (name.ends_with("_backward")) return kernel(r, args);
  fail(ErrorKind::internal, "a formula calls " + std::string(name) + ", which has no row");
}

}  // namespace memplan
