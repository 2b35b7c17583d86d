// Modules that a program calls from several lines, and what an exporter's optimizer left of the later calls.
#include <doctest/doctest.h>

#include <algorithm>

#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

namespace {

struct Place {
  std::string module;  ///< within "d"
  std::string call;    ///< the model's line
};

/// A node of a part of the module "d", which the model's line calls.
void placed(::onnx::NodeProto& n, const std::string& name, const std::string& call, const Place& place,
            const std::string& line) {
  noted(n, name, call, "d." + place.module);
  n.mutable_metadata_props(1)->set_value("['', 'd', 'd." + place.module + "', '" + name + "']");
  n.mutable_metadata_props(2)->set_value("['Model', 'Critic', 'Part', 'aten.op.default']");
  auto* trace = n.add_metadata_props();
  trace->set_key("pkg.torch.onnx.stack_trace");
  trace->set_value("File \"m.py\", line 1, in forward\n    " + place.call +
                   "\n  File \"d.py\", line 2, in forward\n    return self.head(self.body(x))\n  File \"part.py\", "
                   "line 3, in forward\n    " +
                   line + "\n");
}

Tape tape_of(Builder& b) {
  auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  return *tape;
}

std::string caller_of(const Tape& tape, const Call& call) {
  const Scope& part = tape.scopes[static_cast<std::size_t>(call.scope)];
  return tape.scopes[static_cast<std::size_t>(part.parent)].source;
}

}  // namespace

// own code (GANs): `fake = self.d(x.detach())` and `judged = self.d(x)`
TEST_CASE("what a module made is made again where another line calls it") {
  const Place body{"body", "real = self.d(x)"}, head{"head", "real = self.d(x)"}, again{"head", "judged = self.d(x)"};
  Builder b;
  b.input("x", {-1, 8});
  placed(b.node("Mul", {"x", "x"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %x)", body, "x = x * x");
  placed(b.node("Sin", {"mul"}, {"sin"}), "sin", "sin.default](args = (%mul,)", body, "return x.sin()");
  placed(b.node("Neg", {"sin"}, {"neg"}), "neg", "neg.default](args = (%sin,)", head, "return -x");
  placed(b.node("Cos", {"sin"}, {"cos"}), "cos", "cos.default](args = (%sin_1,)", again, "return x.cos()");
  b.output("neg").output("cos");
  const Tape tape = tape_of(b);
  CHECK(ops_of(tape) ==
        Ops{"aten::mul.Tensor", "aten::sin", "aten::neg", "aten::mul.Tensor", "aten::sin", "aten::cos"});
  CHECK(caller_of(tape, tape.calls[0]) == "m.py:1 real = self.d(x)");
  CHECK(caller_of(tape, tape.calls[3]) == "m.py:1 judged = self.d(x)");
}

// own code (HiFi-GAN): feature maps of D(fake), which a loss outside of D compares
TEST_CASE("what a module's second call made is read outside of it as well") {
  const Place body{"body", "real = self.d(x)"}, head{"head", "real = self.d(x)"}, again{"head", "fake = self.d(x)"};
  Builder b;
  b.input("x", {-1, 8});
  placed(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", body, "x = x.exp()");
  placed(b.node("Sin", {"exp"}, {"sin"}), "sin", "sin.default](args = (%exp,)", body, "return x.sin()");
  placed(b.node("Neg", {"sin"}, {"neg"}), "neg", "neg.default](args = (%sin,)", head, "return -x");
  placed(b.node("Cos", {"sin"}, {"cos"}), "cos", "cos.default](args = (%sin_1,)", again, "return x.cos()");
  noted(b.node("Abs", {"exp"}, {"abs_1"}), "abs_1", "abs.default](args = (%exp_1,)");
  b.output("neg").output("cos").output("abs_1");
  const Tape tape = tape_of(b);
  CHECK(ops_of(tape) == Ops{"aten::exp", "aten::sin", "aten::neg", "aten::exp", "aten::sin", "aten::cos", "aten::abs"});
  CHECK(std::get<ValueId>(tape.calls[6].args[0].value) == tape.calls[3].outputs[0]);
}

// own code (label smoothing of the Annotated Transformer): self.criterion(x, true_dist.clone().detach())
TEST_CASE("a copy before a detach is made in the line that asks for both") {
  const auto ops = [](const char* line) {
    Builder b;
    b.input("x", {-1, 8});
    noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)");
    auto& cos = b.node("Cos", {"exp"}, {"cos"});
    noted(cos, "cos", "cos.default](args = (%detach,)", "loss");
    auto* trace = cos.add_metadata_props();
    trace->set_key("pkg.torch.onnx.stack_trace");
    trace->set_value(std::string("File \"m.py\", line 1, in forward\n    ") + line +
                     "\n  File \"loss.py\", line 2, in forward\n    return x.cos()\n");
    b.output("exp").output("cos");
    return ops_of(tape_of(b));
  };
  CHECK(ops("return self.loss(y.clone().detach())") == Ops{"aten::exp", "aten::detach_copy", "aten::cos"});
  CHECK(ops("return self.loss(y.detach())") == Ops{"aten::exp", "aten::detach", "aten::cos"});
  CHECK(ops("return self.loss(y.detach(), z.clone().detach())") == Ops{"aten::exp", "aten::detach", "aten::cos"});
}

// own code (graph networks): `out = src.new_zeros(sizes)`, `out.index_add(0, index, src)` in each layer
TEST_CASE("zeros of another tensor's type are those of the tensor that the reader has in its place") {
  Builder b;
  b.input("x", {-1, 8}).input("y", {-1, 8}).integers("sizes", {4, 8});
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "a");
  noted(b.node("Sin", {"y"}, {"sin"}), "sin", "sin.default](args = (%y,)", "b");
  noted(b.node("ConstantOfShape", {"sizes"}, {"new_zeros"}), "new_zeros", "new_zeros.default](args = (%exp, [4, 8])",
        "a");
  noted(b.node("Add", {"new_zeros", "exp"}, {"add"}), "add", "add.Tensor](args = (%new_zeros, %exp)", "a");
  noted(b.node("Add", {"new_zeros", "sin"}, {"add_1"}), "add_1", "add.Tensor](args = (%new_zeros_1, %sin)", "b");
  b.output("add").output("add_1");
  const Tape tape = tape_of(b);
  std::vector<std::int32_t> like;
  for (const Call& c : tape.calls)
    if (c.op == "aten::new_zeros") like.push_back(std::get<ValueId>(c.args[0].value).index);
  REQUIRE(like.size() == 2);
  CHECK(like[0] == tape.calls[0].outputs[0].index);
  CHECK(like[1] == tape.calls[1].outputs[0].index);
}

// own code (text classifiers): `f, _ = torch.max(f, dim=-1)`
TEST_CASE("a maximum's indices are there though nobody reads them") {
  Builder b;
  b.input("x", {-1, 8}).integers("last", {-1});
  noted(b.node("ReduceMax", {"x", "last"}, {"getitem"}), "max_1", "max.dim](args = (%x, -1)");
  b.output("getitem");
  const Tape tape = tape_of(b);
  REQUIRE(tape.calls.size() == 1);
  REQUIRE(tape.calls[0].outputs.size() == 2);
  CHECK(tape.calls[0].outputs[1].valid());
}
