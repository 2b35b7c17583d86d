// Losses that the exporter takes apart, numbers of sizes, and norms of a network that is called twice.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

namespace {

/// F.binary_cross_entropy(p, t), as torch/_decomp writes it; `k`: which of several.
void loss(Builder& b, const std::string& p, const std::string& t, const std::string& k) {
  noted(b.node("Sub", {t, "one"}, {"sub" + k}), "sub" + k, "sub.Tensor](args = (%" + t + ", %one)");
  noted(b.node("Neg", {p}, {"neg" + k}), "neg" + k, "neg.default](args = (%" + p + ",)");
  noted(b.node("Add", {"neg" + k, "one"}, {"tmp" + k}), "log1p" + k, "log1p.default](args = (%neg" + k + ",)");
  noted(b.node("Log", {"tmp" + k}, {"log1p" + k}), "log1p" + k, "log1p.default](args = (%neg" + k + ",)");
  noted(b.node("Max", {"log1p" + k, "low"}, {"maximum" + k}), "maximum" + k,
        "maximum.default](args = (%log1p" + k + ", %low)");
  noted(b.node("Mul", {"sub" + k, "maximum" + k}, {"mul" + k}), "mul" + k,
        "mul.Tensor](args = (%sub" + k + ", %maximum" + k + ")");
  noted(b.node("Log", {p}, {"log" + k}), "log" + k, "log.default](args = (%" + p + ",)");
  noted(b.node("Max", {"log" + k, "low"}, {"max" + k}), "max" + k, "maximum.default](args = (%log" + k + ", %low)");
  noted(b.node("Mul", {t, "max" + k}, {"mul_1" + k}), "mul_1" + k, "mul.Tensor](args = (%" + t + ", %max" + k + ")");
  noted(b.node("Sub", {"mul" + k, "mul_1" + k}, {"sub_1" + k}), "sub_1" + k,
        "sub.Tensor](args = (%mul" + k + ", %mul_1" + k + ")");
}

Ops named(const Tape& tape, const std::string& op) {
  Ops found;
  for (const Call& c : tape.calls)
    if (c.op == op) found.push_back(tape.values[static_cast<std::size_t>(c.outputs[0].index)].name);
  return found;
}

}  // namespace

TEST_CASE("binary_cross_entropy is one kernel, with its reduction") {
  for (const auto& [node, call, reduction] : {std::tuple{"ReduceMean", "mean.default", 1},
                                              std::tuple{"ReduceSum", "sum.default", 2}, std::tuple{"", "", 0}}) {
    Builder b;
    b.input("p", {-1, 4}).input("t", {-1, 4});
    b.real("one", 1).real("low", -100);
    loss(b, "p", "t", "");
    const std::string op = node;
    if (!op.empty()) {
      auto& n = b.node(op, {"sub_1"}, {"loss"});
      Builder::attribute(n, "keepdims", std::int64_t{0});
      noted(n, "loss", std::string(call) + "](args = (%sub_1,)");
    }
    b.output(op.empty() ? "sub_1" : "loss");
    const auto tape = b.tape(with_batch(4));
    REQUIRE(tape.ok());
    REQUIRE(ops_of(*tape) == Ops{"aten::binary_cross_entropy"});
    CHECK(std::get<std::int64_t>(tape->calls[0].args[3].value) == reduction);
  }
}

TEST_CASE("what else reads a step of a loss keeps it") {
  Builder b;
  b.input("p", {-1, 4}).input("t", {-1, 4});
  b.real("one", 1).real("low", -100);
  loss(b, "p", "t", "");
  noted(b.node("Exp", {"log"}, {"exp"}), "exp", "exp.default](args = (%log,)");
  b.output("sub_1").output("exp");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(named(*tape, "aten::log") == Ops{"log"});
  CHECK(named(*tape, "aten::binary_cross_entropy").size() == 1);
}

TEST_CASE("a quotient by the batch's size is no tensor") {
  // x.sum() / len(x)
  Builder b;
  b.input("x", {-1, 4});
  noted(b.node("Shape", {"x"}, {"val_0"}), "sym_size_int_1", "sym_size.int](args = (%x, 0)");
  Builder::attribute(*b.graph().mutable_node(0), "end", std::int64_t{1});
  Builder::attribute(*b.graph().mutable_node(0), "start", std::int64_t{0});
  noted(b.node("Squeeze", {"val_0"}, {"sym_size_int_1"}), "sym_size_int_1", "sym_size.int](args = (%x, 0)");
  auto& sum = b.node("ReduceSum", {"x"}, {"sum_1"});
  Builder::attribute(sum, "keepdims", std::int64_t{0});
  noted(sum, "sum_1", "sum.default](args = (%x,)");
  auto& cast = b.node("Cast", {"sym_size_int_1"}, {"scalar_tensor_default"});
  Builder::attribute(cast, "to", std::int64_t{::onnx::TensorProto::FLOAT});
  noted(cast, "scalar_tensor_default", "scalar_tensor.default](args = (%sym_size_int_1,)");
  noted(b.node("Div", {"sum_1", "scalar_tensor_default"}, {"div"}), "div",
        "div.Tensor](args = (%sum_1, %scalar_tensor_default)");
  // A name that nothing has: the lines alone do not tell the program.
  noted(b.node("Exp", {"div"}, {"exp"}), "exp", "exp.default](args = (%lost,)");
  b.output("exp");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  const auto div = std::ranges::find(tape->calls, "aten::div.Tensor", &Call::op);
  REQUIRE(div != tape->calls.end());
  CHECK(std::get<double>(div->args[1].value) == 4.0);
  CHECK(std::ranges::count(tape->calls, "aten::squeeze.dim", &Call::op) == 0);
}

TEST_CASE("D(fake) after D(fake.detach()) is a pass of its own, with its norms, and not detached") {
  const auto calls = [](int users) {
    Builder b;
    b.input("z", {-1, 4, 2, 2});
    for (const char* name : {"weight", "bias", "running_mean", "running_var"})
      b.weight("D.1." + std::string(name), {4});
    noted(b.node("Tanh", {"z"}, {"tanh"}), "tanh", "tanh.default](args = (%z,)", "G", users);
    noted(b.node("Exp", {"tanh"}, {"exp"}), "exp", "exp.default](args = (%detach,)", "D.0");
    auto& norm = b.node("BatchNormalization", {"exp", "D.1.weight", "D.1.bias", "D.1.running_mean", "D.1.running_var"},
                        {"getitem"});
    Builder::attribute(norm, "training_mode", std::int64_t{0});
    noted(norm, "_native_batch_norm_legit_functional",
          "_native_batch_norm_legit_functional.default](args = (%exp, None, None, None, None, True, 0.1, 1e-05)",
          "D.1");
    noted(b.node("Sigmoid", {"getitem"}, {"sigmoid"}), "sigmoid", "sigmoid.default](args = (%getitem,)", "D.2");
    noted(b.node("Neg", {"sigmoid"}, {"neg"}), "neg", "neg.default](args = (%sigmoid,)");
    noted(b.node("Cos", {"sigmoid"}, {"cos"}), "cos", "cos.default](args = (%sigmoid_1,)");
    b.output("neg").output("cos");
    auto tape = b.tape(with_batch(4));
    REQUIRE(tape.ok());
    Ops read;  // by the calls of D's first module
    for (const Call& c : tape->calls)
      if (c.op == "aten::exp")
        read.push_back(tape->values[static_cast<std::size_t>(std::get<ValueId>(c.args[0].value).index)].name);
    CHECK(named(*tape, "aten::batch_norm").size() == 2);
    return read;
  };
  CHECK(calls(2) == Ops{"detach", "tanh"});
  CHECK(calls(1) == Ops{"detach", "detach"});  // D(fake.detach()) twice
}

TEST_CASE("two views of the same samples come in batches of one size, whatever their dimensions are called") {
  const auto sizes = [](std::initializer_list<std::int64_t> second) {
    Builder b;
    b.input("x_i", {-1, 3, 4}).input("x_j", second);
    for (const auto& [input, symbol] : {std::pair{0, "s77"}, std::pair{1, "s39"}})
      b.graph()
          .mutable_input(input)
          ->mutable_type()
          ->mutable_tensor_type()
          ->mutable_shape()
          ->mutable_dim(0)
          ->set_dim_param(symbol);
    b.node("Exp", {"x_i"}, {"e"});
    b.node("Cos", {"x_j"}, {"c"});
    b.output("e").output("c");
    TrainingSetup setup = with_batch(4);
    return b.tape(setup);
  };
  const auto alike = sizes({-1, 3, 4});
  REQUIRE(alike.ok());
  CHECK(alike->values[static_cast<std::size_t>(alike->inputs[1].index)].sizes == std::vector<std::int64_t>{4, 3, 4});
  CHECK(!sizes({-1, 2, 4}).ok());  // another kind of thing: its size has to be given
}
