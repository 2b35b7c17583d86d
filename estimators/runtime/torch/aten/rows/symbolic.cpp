// Arithmetic on sizes: Python numbers that the exporters keep as nodes. No memory.
#include <cmath>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/whole_number.h"

namespace memplan {

namespace {

bool both_int(const Args& a) {
  return std::holds_alternative<std::int64_t>(a[0].v) && std::holds_alternative<std::int64_t>(a[1].v);
}

std::int64_t divisor(std::int64_t b) {
  if (b == 0) fail_input("a size is divided by zero");
  return b;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return floored_quotient(a, divisor(b), "the sizes"); }

/// a ** b; `b` is not negative.
std::int64_t power(std::int64_t a, std::int64_t b) {
  std::int64_t out = 1;
  for (;; a = checked_mul(a, a)) {
    if (b % 2 == 1) out = checked_mul(out, a);
    b /= 2;
    if (b == 0) return out;
  }
}

template <class D>
ValueList rounded(Args& a, D real) {
  if (!std::holds_alternative<double>(a[0].v)) return {Value(a.integer(0))};
  return {Value(whole_number(real(a.number(0)), a.op()))};
}

template <class I, class D>
ValueList arithmetic(Args& a, I whole, D real) {
  if (both_int(a)) return {Value(static_cast<std::int64_t>(whole(a.integer(0), a.integer(1))))};
  return {Value(static_cast<double>(real(a.number(0), a.number(1))))};
}

}  // namespace

void register_symbolic(OpTable& t) {
  for (const char* n : {"aten::sym_size.int", "aten::sym_size"})
    t.add(n, "self, dim", [](Run&, Args& a) -> ValueList {
      Tensor x = a.tensor(0);
      return {Value(x->sizes[op::wrap_dim(a.integer(1), x->rank())])};
    });
  t.add("aten::sym_numel", "self", [](Run&, Args& a) -> ValueList { return {Value(a.tensor(0)->numel())}; });
  t.add("_operator.add", "a, b",
        [](Run&, Args& a) { return arithmetic(a, checked_add, [](double x, double y) { return x + y; }); });
  t.add("_operator.sub", "a, b",
        [](Run&, Args& a) { return arithmetic(a, checked_sub, [](double x, double y) { return x - y; }); });
  t.add("_operator.mul", "a, b",
        [](Run&, Args& a) { return arithmetic(a, checked_mul, [](double x, double y) { return x * y; }); });
  t.add("_operator.floordiv", "a, b",
        [](Run&, Args& a) { return arithmetic(a, floor_div, [](double x, double y) { return std::floor(x / y); }); });
  t.add("_operator.mod", "a, b", [](Run&, Args& a) {
    return arithmetic(
        a, [](auto x, auto y) { return floored_remainder(x, divisor(y)); },
        [](double x, double y) { return x - y * std::floor(x / y); });
  });
  t.add("_operator.truediv", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) / a.number(1))}; });
  t.add("_operator.pow", "a, b", [](Run&, Args& a) -> ValueList {
    if (both_int(a) && a.integer(1) >= 0) return {Value(power(a.integer(0), a.integer(1)))};
    return {Value(std::pow(a.number(0), a.number(1)))};
  });
  t.add("_operator.neg", "a", [](Run&, Args& a) -> ValueList {
    if (std::holds_alternative<double>(a[0].v)) return {Value(-a.number(0))};
    return {Value(checked_sub(0, a.integer(0)))};
  });
  for (const char* n : {"torch.sym_max", "builtins.max"})
    t.add(n, "a, b", [](Run&, Args& a) {
      return arithmetic(
          a, [](auto x, auto y) { return std::max(x, y); }, [](double x, double y) { return std::max(x, y); });
    });
  for (const char* n : {"torch.sym_min", "builtins.min"})
    t.add(n, "a, b", [](Run&, Args& a) {
      return arithmetic(
          a, [](auto x, auto y) { return std::min(x, y); }, [](double x, double y) { return std::min(x, y); });
    });
  for (const char* n : {"math.trunc", "torch.sym_int"})
    t.add(n, "a", [](Run&, Args& a) -> ValueList { return {Value(a.integer(0))}; });
  t.add("math.floor", "a", [](Run&, Args& a) { return rounded(a, [](double x) { return std::floor(x); }); });
  t.add("math.ceil", "a", [](Run&, Args& a) { return rounded(a, [](double x) { return std::ceil(x); }); });
  for (const char* n : {"torch.sym_float", "aten::sym_float"})
    t.add(n, "a", [](Run&, Args& a) -> ValueList { return {Value(a.number(0))}; });
  t.add("_operator.eq", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) == a.number(1))}; });
  t.add("_operator.ne", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) != a.number(1))}; });
  t.add("_operator.lt", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) < a.number(1))}; });
  t.add("_operator.le", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) <= a.number(1))}; });
  t.add("_operator.gt", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) > a.number(1))}; });
  t.add("_operator.ge", "a, b", [](Run&, Args& a) -> ValueList { return {Value(a.number(0) >= a.number(1))}; });
  t.add("_operator.getitem", "a, index", [](Run&, Args& a) -> ValueList {
    const ValueList& list = a[0].list();
    const std::int64_t i = a.integer(1);
    if (i < 0 || i >= static_cast<std::int64_t>(list.size())) fail_input("a list index is out of range");
    return {list[i]};
  });
}

}  // namespace memplan
