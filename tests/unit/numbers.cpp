// Numbers of files that are too large for what is computed with them.
#include <doctest/doctest.h>

#include <limits>

#include "estimators/base/whole_number.h"
#include "estimators/graph/expression.h"
#include "estimators/pipeline.h"
#include "estimators/tape/tape_text.h"
#include "estimators/unroll/values.h"

using namespace memplan;

namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min(),
                       highest = std::numeric_limits<std::int64_t>::max();

/// The size that the calls compute as %n, or the words of the error.
std::string size_of(const std::string& calls) {
  const auto tape = catching([&] {
    return from_text("input %x float32 [2]\nscope 0 \"\" M\n" + calls + "%y = aten::full([%n], 0.0) in 0\nreturn %y\n");
  });
  if (!tape) return tape.error().what;
  TrainingSetup setup;
  setup.mode = Mode::inference;
  setup.steps = 1;
  const auto steps = run_steps(*tape, setup, Device{});
  if (!steps) return steps.error().what;
  Bytes most;
  for (const Allocation& a : steps->allocations) most = std::max(most, a.size);
  return std::to_string(most.count / 4);
}

std::string told(std::string_view op, const std::vector<torchscript::V>& args) {
  const auto out = catching([&] { return torchscript::python_op(op, args); });
  if (!out) return out.error().what;
  if (!*out) return "not followed";
  if (const auto* i = (**out).get<std::int64_t>()) return std::to_string(*i);
  if (const auto* d = (**out).get<double>()) return std::to_string(*d);
  if (const auto* b = (**out).get<bool>()) return *b ? "true" : "false";
  return "something else";
}

using V = torchscript::V;
const std::string beyond = "a number in the TorchScript program is beyond 64 bits";

}  // namespace

TEST_CASE("doubles are whole numbers up to 64 bits") {
  CHECK(whole_number(-2.9, "a test") == -2);
  CHECK(whole_number(0x1p62, "a test") == std::int64_t{1} << 62);
  CHECK(whole_number(-0x1p63, "a test") == lowest);
  for (const double number : {0x1p63, -0x1.0000000000001p63, 1e300, HUGE_VAL, -HUGE_VAL, std::nan("")})
    CHECK_THROWS_AS(whole_number(number, "a test"), Failure);
}

TEST_CASE("quotients round down, and remainders have the sign of the divisor") {
  // What Python prints for a // b and a % b.
  CHECK(floored_quotient(-7, 2, "a test") == -4);
  CHECK(floored_quotient(7, -2, "a test") == -4);
  CHECK(floored_quotient(-8, 2, "a test") == -4);
  CHECK(floored_remainder(-7, 2) == 1);
  CHECK(floored_remainder(7, -2) == -1);
  CHECK(floored_remainder(-8, 2) == 0);
  CHECK(floored_remainder(lowest, -1) == 0);
  CHECK_THROWS_AS(floored_quotient(lowest, -1, "a test"), Failure);
}

TEST_CASE("a size is no value where its number is beyond doubles or more than a number") {
  const Symbols symbols{{"s0", 4}};
  CHECK(value_of_expression("2*s0 + 1.5e1", symbols) == 23.0);
  for (const std::string& text :
       {"1" + std::string(400, '0'), std::string("1e999"), std::string("12ab"), std::string("1.2.3")})
    CHECK_FALSE(value_of_expression(text, symbols));
}

TEST_CASE("arithmetic on sizes is Python's") {
  CHECK(size_of("%n = _operator.pow(3, 4) in 0\n") == "81");
  CHECK(size_of("%a = _operator.floordiv(7, -2) in 0\n%n = _operator.neg(%a) in 0\n") == "4");
  CHECK(size_of("%n = math.trunc(7.9) in 0\n") == "7");
  CHECK(size_of("%n = math.ceil(7.1) in 0\n") == "8");
  CHECK(size_of("%a = math.floor(-7.1) in 0\n%n = _operator.neg(%a) in 0\n") == "8");
  CHECK(size_of("%a = math.trunc(-7.9) in 0\n%n = _operator.neg(%a) in 0\n") == "7");
  CHECK(size_of("%n = torch.sym_max(7, 9) in 0\n") == "9");
}

TEST_CASE("sizes beyond 64 bits are errors that name the op") {
  CHECK(size_of("%n = math.floor(1e300) in 0\n") == "a number in math.floor is beyond 64 bits");
  CHECK(size_of("%n = math.ceil(-1e19) in 0\n") == "a number in math.ceil is beyond 64 bits");
  CHECK(size_of("%n = _operator.floordiv(-9223372036854775808, -1) in 0\n") ==
        "a number in the sizes is beyond 64 bits");
  CHECK(size_of("%n = _operator.pow(10, 30) in 0\n") == "a size overflows 64 bits");
  CHECK(size_of("%n = _operator.neg(-9223372036854775808) in 0\n") == "a size overflows 64 bits");
  CHECK(size_of("%n = _operator.sub(1, -9223372036854775807) in 0\n") == "a size overflows 64 bits");
}

TEST_CASE("numbers of a TorchScript program are Python's") {
  CHECK(told("aten::floordiv", {V(std::int64_t{-7}), V(std::int64_t{2})}) == "-4");
  CHECK(told("aten::remainder", {V(std::int64_t{-7}), V(std::int64_t{2})}) == "1");
  CHECK(told("aten::fmod", {V(std::int64_t{-7}), V(std::int64_t{2})}) == "-1");  // C's
  CHECK(told("aten::fmod", {V(-7.5), V(2.0)}) == std::to_string(-1.5));
  CHECK(told("aten::sub", {V(7.0), V(std::int64_t{2})}) == std::to_string(5.0));
  CHECK(told("aten::add", {V(1.0), V(2.0), V(0.5)}) == std::to_string(2.0));  // alpha
  CHECK(told("aten::rsub", {V(std::int64_t{2}), V(std::int64_t{7}), V(std::int64_t{3})}) == "1");
  CHECK(told("aten::logical_and", {V(std::int64_t{2}), V(std::int64_t{1})}) == "true");
  CHECK(told("aten::__and__", {V(std::int64_t{2}), V(std::int64_t{1})}) == "0");
  CHECK(told("aten::__xor__", {V(true), V(true)}) == "false");
  CHECK(told("aten::__and__", {V(2.0), V(std::int64_t{1})}) == "not followed");
  CHECK(told("aten::round", {V(2.5)}) == "2");
  CHECK(told("aten::abs", {V(std::int64_t{-3})}) == "3");
  // len(range(a, b, c))
  CHECK(told("aten::__range_length", {V(std::int64_t{0}), V(std::int64_t{10}), V(std::int64_t{3})}) == "4");
  CHECK(told("aten::__range_length", {V(std::int64_t{10}), V(std::int64_t{0}), V(std::int64_t{-3})}) == "4");
  CHECK(told("aten::__range_length", {V(std::int64_t{9}), V(std::int64_t{0}), V(std::int64_t{-3})}) == "3");
  CHECK(told("aten::__range_length", {V(std::int64_t{5}), V(std::int64_t{5}), V(std::int64_t{1})}) == "0");
}

TEST_CASE("numbers of a TorchScript program beyond 64 bits are errors") {
  const V low(lowest), high(highest), one(std::int64_t{1}), minus(std::int64_t{-1}), huge(1e300);
  for (const char* op : {"aten::floor", "aten::ceil", "aten::round", "aten::Int"}) CHECK(told(op, {huge}) == beyond);
  for (const char* op : {"aten::neg", "aten::abs"}) CHECK(told(op, {low}) == beyond);
  for (const char* op : {"aten::floordiv", "aten::mul"}) CHECK(told(op, {low, minus}) == beyond);
  CHECK(told("aten::div", {low, minus, V("trunc")}) == beyond);
  CHECK(told("aten::add", {high, one}) == beyond);
  CHECK(told("aten::remainder", {low, minus}) == "0");
  CHECK(told("aten::gt", {huge, one}) == "true");  // a comparison casts nothing
  CHECK(told("aten::__range_length", {low, high, one}) == beyond);
  CHECK(told("aten::__derive_index", {high, one, high}) == beyond);
}

TEST_CASE("lists of a TorchScript program have a limit, and empty ones take no time") {
  const V twice = torchscript::make_list({V(std::int64_t{1}), V(std::int64_t{2})});
  CHECK(told("aten::mul", {twice, V(std::int64_t{1} << 40)}).find("more than 1000000 entries") != std::string::npos);
  const auto none = torchscript::python_op("aten::mul", {torchscript::make_list({}), V(std::int64_t{1} << 62)});
  CHECK((*none->get<torchscript::ListV>())->empty());
  const auto few = torchscript::python_op("aten::slice", {twice, V(std::int64_t{1}), V(highest), V(highest)});
  CHECK((*few->get<torchscript::ListV>())->size() == 1);
}
