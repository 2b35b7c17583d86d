// PyTorch ops recovered from the nodes that an exporter decomposed them into, and forms that must stay as they are.
#include <doctest/doctest.h>

#include <cmath>

#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

namespace {

/// The form of torch.onnx's scaled_dot_product_attention; `post` scales the scores instead, as modules do by hand.
Builder attention(bool causal, bool post, float ratio) {
  Builder b;
  for (const char* name : {"q", "k", "v"}) b.input(name, {-1, 4, 16, 64});
  b.real("s", post ? 0.125f : std::sqrt(0.125f));
  b.node("Transpose", {"k"}, {"kt"});
  Builder::attribute(*b.graph().mutable_node(b.graph().node_size() - 1), "perm", {0, 1, 3, 2});
  std::string scores = "scores";
  if (post) {
    b.node("MatMul", {"q", "kt"}, {"raw"});
    b.node("Mul", {"raw", "s"}, {"scores"});
  } else {
    b.node("Mul", {"q", "s"}, {"qs"});
    b.node("Mul", {"kt", "s"}, {"ks"});
    b.node("MatMul", {"qs", "ks"}, {"scores"});
  }
  if (causal) {
    b.real("one", 1).real("zero", 0).real("low", -INFINITY).integers("square", {16, 16});
    b.node("Expand", {"one", "square"}, {"ones"});
    Builder::attribute(b.node("Trilu", {"ones"}, {"triangle"}), "upper", std::int64_t{0});
    b.node("Equal", {"triangle", "zero"}, {"hidden"});
    b.node("Where", {"hidden", "low", "zero"}, {"mask"});
    b.node("Add", {"scores", "mask"}, {"masked"});
    scores = "masked";
  }
  b.node("Softmax", {scores}, {"weights"});
  b.real("ratio", ratio);
  b.node("Dropout", {"weights", "ratio"}, {"dropped"});
  b.node("MatMul", {"dropped", "v"}, {"y"});
  b.output("y");
  return b;
}

}  // namespace

TEST_CASE("attention as torch.onnx writes it is one call") {
  const auto plain = attention(false, false, 0.1f).tape(with_batch(2));
  REQUIRE(plain.ok());
  REQUIRE(ops_of(*plain) == Ops{"aten::scaled_dot_product_attention"});
  const Call& call = plain->calls[0];
  // k itself, not its transpose.
  CHECK(plain->values[static_cast<std::size_t>(std::get<ValueId>(call.args[1].value).index)].name == "k");
  CHECK(call.args[3].is_none());
  CHECK(std::get<double>(call.args[4].value) == doctest::Approx(0.1));
  CHECK_FALSE(std::get<bool>(call.args[5].value));
  CHECK(plain->recovered.size() == 1);

  const auto causal = attention(true, false, 0.0f).tape(with_batch(2));
  REQUIRE(causal.ok());
  REQUIRE(ops_of(*causal) == Ops{"aten::scaled_dot_product_attention"});  // the mask is not made
  CHECK(std::get<bool>(causal->calls[0].args[5].value));
}

TEST_CASE("attention that a module writes out stays written out") {
  const auto tape = attention(false, true, 0.1f).tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::transpose.int", "aten::matmul", "aten::mul.Tensor", "aten::softmax.int",
                             "aten::dropout", "aten::matmul"});
}

TEST_CASE("layer norm before opset 17") {
  Builder b(13);
  b.input("x", {-1, 8, 32}).weight("ln.weight", {32}).weight("ln.bias", {32}).real("two", 2).real("eps", 1e-5f);
  Builder::attribute(b.node("ReduceMean", {"x"}, {"mean"}), "axes", std::initializer_list<std::int64_t>{-1});
  b.node("Sub", {"x", "mean"}, {"d"});
  b.node("Pow", {"d", "two"}, {"p"});
  Builder::attribute(b.node("ReduceMean", {"p"}, {"var"}), "axes", std::initializer_list<std::int64_t>{-1});
  b.node("Add", {"var", "eps"}, {"ve"});
  b.node("Sqrt", {"ve"}, {"std"});
  b.node("Div", {"d", "std"}, {"n"});
  b.node("Mul", {"n", "ln.weight"}, {"w"});
  SUBCASE("whole") {
    b.node("Add", {"w", "ln.bias"}, {"y"});
    b.output("y");
    const auto tape = b.tape(with_batch(2));
    REQUIRE(tape.ok());
    REQUIRE(ops_of(*tape) == Ops{"aten::layer_norm"});
    CHECK(numbers(tape->calls[0], 1) == std::vector<std::int64_t>{32});
    CHECK(tape->parameters.size() == 2);
  }
  SUBCASE("a part of it that something else reads keeps the nodes") {
    b.node("Add", {"w", "ln.bias"}, {"y"});
    b.output("y").output("std");
    const auto tape = b.tape(with_batch(2));
    REQUIRE(tape.ok());
    const Ops ops = ops_of(*tape);
    CHECK(std::count(ops.begin(), ops.end(), "aten::layer_norm") == 0);
    CHECK(std::count(ops.begin(), ops.end(), "aten::sqrt") == 1);
  }
}

TEST_CASE("activations") {
  Builder b(13);
  b.input("x", {-1, 32}).real("root2", std::sqrt(2.0f)).real("one", 1).real("half", 0.5f);
  Ops expected;
  SUBCASE("exact gelu") {
    b.node("Div", {"x", "root2"}, {"a"});
    b.node("Erf", {"a"}, {"e"});
    b.node("Add", {"e", "one"}, {"f"});
    b.node("Mul", {"x", "f"}, {"g"});
    b.node("Mul", {"g", "half"}, {"y"});
    expected = {"aten::gelu"};
  }
  SUBCASE("another divisor is no gelu") {
    b.real("three", 3);
    b.node("Div", {"x", "three"}, {"a"});
    b.node("Erf", {"a"}, {"e"});
    b.node("Add", {"e", "one"}, {"f"});
    b.node("Mul", {"x", "f"}, {"g"});
    b.node("Mul", {"g", "half"}, {"y"});
    expected = {"aten::div.Tensor", "aten::erf", "aten::add.Tensor", "aten::mul.Tensor", "aten::mul.Tensor"};
  }
  SUBCASE("silu") {
    b.node("Sigmoid", {"x"}, {"s"});
    b.node("Mul", {"x", "s"}, {"y"});
    expected = {"aten::silu"};
  }
  SUBCASE("rsqrt") {
    b.node("Sqrt", {"x"}, {"s"});
    b.node("Div", {"one", "s"}, {"y"});
    expected = {"aten::rsqrt"};
  }
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == expected);
}

TEST_CASE("cross entropy in a training file") {
  Builder b;
  b.input("logits", {-1, 10}).input("target", {-1}, ::onnx::TensorProto::INT64);
  Builder::attribute(b.node("LogSoftmax", {"logits"}, {"l"}), "axis", std::int64_t{1});
  b.node("NegativeLogLikelihoodLoss", {"l", "target"}, {"loss"});
  b.output("loss");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::cross_entropy_loss"});
}

TEST_CASE("an LSTM of two layers is one call on the parameters themselves") {
  Builder b;
  b.input("x", {7, -1, 16})
      .integers("axis0", {0})
      .integers("axis1", {1})
      .integers("from", {0})
      .integers("mid", {32})
      .integers("end", {128});
  for (int l = 0; l < 2; ++l) {
    const std::string n = std::to_string(l);
    b.weight("lstm.weight_ih_l" + n, {128, l == 0 ? 16 : 32})
        .weight("lstm.weight_hh_l" + n, {128, 32})
        .weight("lstm.bias_ih_l" + n, {128})
        .weight("lstm.bias_hh_l" + n, {128});
    for (const std::string part : {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"}) {
      b.node("Slice", {"lstm." + part + n, "from", "mid", "axis0"}, {part + n + "a"});
      b.node("Slice", {"lstm." + part + n, "mid", "end", "axis0"}, {part + n + "b"});
      Builder::attribute(b.node("Concat", {part + n + "b", part + n + "a"}, {part + n + "c"}), "axis", std::int64_t{0});
    }
    Builder::attribute(b.node("Concat", {"bias_ih_l" + n + "c", "bias_hh_l" + n + "c"}, {"bias" + n}), "axis",
                       std::int64_t{0});
    b.node("Unsqueeze", {"weight_ih_l" + n + "c", "axis0"}, {"w" + n});
    b.node("Unsqueeze", {"weight_hh_l" + n + "c", "axis0"}, {"r" + n});
    b.node("Unsqueeze", {"bias" + n, "axis0"}, {"b" + n});
    Builder::attribute(b.node("LSTM", {l == 0 ? "x" : "s0", "w" + n, "r" + n, "b" + n}, {"y" + n}, "/lstm/LSTM_" + n),
                       "hidden_size", std::int64_t{32});
    b.node("Squeeze", {"y" + n, "axis1"}, {"s" + n}, "/lstm/Squeeze_" + n);
  }
  b.output("s1");
  const auto tape = b.tape(with_batch(3));
  REQUIRE(tape.ok());
  const Ops ops = ops_of(*tape);
  CHECK(std::count(ops.begin(), ops.end(), "aten::lstm.input") == 1);
  CHECK(std::count(ops.begin(), ops.end(), "aten::cat") == 0);
  CHECK(tape->parameters.size() == 8);
}
