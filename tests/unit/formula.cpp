// Backward formulas on paper: the order in which temporaries come and go is that of the C++ expression.
#include "estimators/runtime/torch/aten/formula.h"

#include <doctest/doctest.h>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/setup/setup.h"

using namespace memplan;

namespace {

/// "+12 -0": sizes of what is allocated, and which allocation (counted from the first of the formula) is freed.
std::string trace(std::string_view text, const std::vector<std::pair<std::string, Dims>>& tensors) {
  Device device;
  Run run(run_options({}), device);
  run.grad_mode = false;
  Bindings bindings;
  for (const auto& [name, sizes] : tensors) bindings.set(name, run.empty(sizes, DType::float32));
  const std::size_t first = run.schedule.events.size(), base = run.schedule.allocations.size();
  std::string out;
  {
    ValueList results = Formula(text).evaluate(run, bindings, [](int) { return true; });
    for (std::size_t i = first; i < run.schedule.events.size(); ++i) {
      const Event& e = run.schedule.events[i];
      out += e.kind == Event::Kind::alloc ? '+' + std::to_string(run.schedule.allocations[e.allocation].size.count)
                                          : '-' + std::to_string(e.allocation - static_cast<std::int32_t>(base));
      out += ' ';
    }
  }
  return out;
}

}  // namespace

TEST_CASE("temporaries of a formula live to the end of their statement and die in reverse order") {
  CHECK(trace("grad * self", {{"grad", {4}}, {"self", {4}}}) == "+16 ");
  CHECK(trace("grad * (self + 1).rsqrt()", {{"grad", {4}}, {"self", {4}}}) == "+16 +16 +16 -1 -0 ");
  // The right operand first: a row, a column, then their product.
  CHECK(trace("grad * (other + 1)", {{"grad", {2, 3}}, {"other", {3}}}) == "+12 +24 -0 ");
}

TEST_CASE("named values die with the formula, the last first, after the statement's temporaries") {
  CHECK(trace("a = self + 1; b = a * a; grad * b", {{"grad", {4}}, {"self", {4}}}) == "+16 +16 +16 -1 -0 ");
  CHECK(trace("a = self * self * 2; grad * a", {{"grad", {4}}, {"self", {4}}}) == "+16 +16 -0 +16 -1 ");
}

TEST_CASE("in-place functions and choices make no tensor of their own") {
  CHECK(trace("(grad / 2).masked_fill_(self < 0, 0)", {{"grad", {4}}, {"self", {4}}}) == "+16 +4 -1 ");
  CHECK(trace("2 > 1 ? grad * self : grad.exp().exp()", {{"grad", {4}}, {"self", {4}}}) == "+16 ");
}

TEST_CASE("several results are made left to right") {
  CHECK(trace("{grad * other, grad * -other}", {{"grad", {4}}, {"other", {4}}}) == "+16 +16 +16 -1 ");
}

TEST_CASE("a formula that is malformed or reads what is not bound is a defect, not a wrong number") {
  CHECK_THROWS_AS(Formula("grad * (self"), Failure);
  CHECK_THROWS_AS(Formula("grad *"), Failure);
  CHECK_THROWS_AS(trace("grad * nothing", {{"grad", {4}}}), Failure);
  CHECK_THROWS_AS(trace("no_such_function(grad)", {{"grad", {4}}}), Failure);
}

TEST_CASE("an input that only another's gradient needs is kept only if that one wants a gradient") {
  Device device;
  Run run(run_options({}), device);
  Tensor x = run.empty({4}, DType::float32), y = run.empty({4}, DType::float32), z = run.empty({4}, DType::float32);
  x->requires_grad_leaf = true;
  const Derivatives product("self: grad * other | other: grad * self");
  const Node* node = product.record(run, {{"self", x}, {"other", y}}, {z});
  REQUIRE(node);
  REQUIRE(node->saved.size() == 1);
  CHECK(node->saved[0].get() == y.get());
  CHECK(Derivatives("self: grad / result | other: grad").reads("result"));
}

TEST_CASE("the formulas of every row can be read: they are parsed only where a model runs the op") {
  int rows = 0;
  const OpTable table = base_ops();
  for (const Row& row : table.rows())
    if (!row.derivatives.empty()) {
      CAPTURE(row.name);
      CHECK_NOTHROW(row.derivatives.names());
      ++rows;
    }
  CHECK(rows > 50);
  CHECK_THROWS_AS(Derivatives("self: grad * (other").names(), Failure);
}
