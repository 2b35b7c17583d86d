// Where calls stand that an ONNX file's optimizer merged or took apart, and what its lines write in place.
#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/tape/uses.h"
#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

namespace {

/// Gives a node the exporter's notes: its call, the modules around it, outermost first, and the line of each.
void noted_at(::onnx::NodeProto& n, const std::string& name, const std::string& call,
              const std::vector<std::string>& modules, const std::vector<std::string>& lines) {
  const auto entry = [&](const char* key, const std::string& value) {
    auto* e = n.add_metadata_props();
    e->set_key(key);
    e->set_value(value);
  };
  entry("pkg.torch.onnx.fx_node",
        "%" + name + " : [num_users=1] = call_function[target=torch.ops.aten." + call + ", kwargs = {})");
  std::string scopes, classes, trace;
  for (const std::string& m : modules) scopes += "'" + m + "', ", classes += m.empty() ? "'Net', " : "'Part', ";
  for (const std::string& line : lines) trace += "  File \"net.py\", line 1, in forward\n    " + line + "\n";
  entry("pkg.torch.onnx.name_scopes", "[" + scopes + "'" + name + "']");
  entry("pkg.torch.onnx.class_hierarchy", "[" + classes + "'aten.op.default']");
  entry("pkg.torch.onnx.stack_trace", trace);
}

const Scope& scope_of(const Tape& tape, std::size_t call) {
  return tape.scopes[static_cast<std::size_t>(tape.calls[call].scope)];
}

}  // namespace

TEST_CASE("a call that comes again stands in the reader's module with all its numbers, and below its lines") {
  Builder b;
  b.input("x", {-1, 8});
  noted_at(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", {"", "stages.0.1.drop"},
           {"x = block(x)", "m = exp(x)"});
  noted_at(b.node("Mul", {"x", "exp"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %exp)", {"", "stages.0.1.drop"},
           {"x = block(x)", "return x * m"});
  noted_at(b.node("Mul", {"mul", "exp"}, {"mul_1"}), "mul_1", "mul.Tensor](args = (%mul, %exp_1)",
           {"", "stages.2.4.drop"}, {"x = checkpoint(block, x)", "return x * m"});
  b.output("mul_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::exp", "aten::mul.Tensor", "aten::exp", "aten::mul.Tensor"});
  CHECK(scope_of(*tape, 2).path == "stages.2.4.drop");
  CHECK(scope_of(*tape, 2).source == "net.py:1 x = checkpoint(block, x)");
  CHECK(tape->calls[2].source == "net.py:1 m = exp(x)");
}

TEST_CASE("a block's own call that was merged with the model's stands where the next block makes it") {
  Builder b;
  b.input("x", {-1, 8});
  const std::vector<std::string> out{"d = exp(x)"}, made{"x = block(x)", "diff = exp(x)"},
      read{"x = block(x)", "return tanh(diff)"};
  noted_at(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", {""}, out);
  noted_at(b.node("Tanh", {"exp"}, {"tanh"}), "tanh", "tanh.default](args = (%exp_1,)", {"", "blocks.0"}, read);
  noted_at(b.node("Exp", {"tanh"}, {"exp_2"}), "exp_2", "exp.default](args = (%tanh,)", {"", "blocks.1"}, made);
  noted_at(b.node("Tanh", {"exp_2"}, {"tanh_1"}), "tanh_1", "tanh.default](args = (%exp_2,)", {"", "blocks.1"}, read);
  b.output("tanh_1").output("exp");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::exp", "aten::exp", "aten::tanh", "aten::exp", "aten::tanh"});
  CHECK(scope_of(*tape, 1).path == "blocks.0");
  CHECK(tape->calls[1].source == "net.py:1 diff = exp(x)");
}

TEST_CASE("slices and squeezes of one unbind are one call") {
  Builder b;
  b.input("x", {-1, 3, 8});
  b.integers("0", {0}).integers("1", {1}).integers("2", {2}).integers("3", {3});
  const std::string call = "unbind.int](args = (%x, 1)";
  for (int i = 0; i < 3; ++i) {
    const std::string k = std::to_string(i), part = "part_" + k, item = "getitem_" + k;
    noted_at(b.node("Slice", {"x", k, std::to_string(i + 1), "1"}, {part}), "unbind", call, {""}, {"q, k, v = x"});
    noted_at(b.node("Squeeze", {part, "1"}, {item}), "unbind", call, {""}, {"q, k, v = x"});
  }
  noted_at(b.node("Add", {"getitem_0", "getitem_2"}, {"add"}), "add", "add.Tensor](args = (%getitem_0, %getitem_2)",
           {""}, {"y = q + v"});
  // A name that nothing makes, so that the text alone does not tell the program.
  noted_at(b.node("Relu", {"add"}, {"relu"}), "relu", "relu.default](args = (%dropout,)", {""},
           {"return relu(drop(y))"});
  b.output("relu");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::unbind.int", "aten::add.Tensor", "aten::relu"});
  REQUIRE(tape->calls[0].outputs.size() == 3);
  CHECK(std::get<ValueId>(tape->calls[1].args[1].value) == tape->calls[0].outputs[2]);
}

// torch/onnx: aten.bernoulli.p is RandomUniformLike, Less and CastLike, which the optimizer makes a Cast without notes.
TEST_CASE("the Cast that ends a Bernoulli is part of it") {
  Builder b;
  b.input("x", {-1, 8}).real("p", 0.9F);
  const std::string call = "bernoulli.p](args = (%x, 0.9)";
  noted_at(b.node("RandomUniformLike", {"x"}, {"rands"}), "bernoulli", call, {""}, {"m = torch.bernoulli(x, 0.9)"});
  noted_at(b.node("Less", {"rands", "p"}, {"sampled"}), "bernoulli", call, {""}, {"m = torch.bernoulli(x, 0.9)"});
  Builder::attribute(b.node("Cast", {"sampled"}, {"bernoulli"}), "to", std::int64_t{1});
  noted_at(b.node("Mul", {"x", "bernoulli"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %bernoulli)", {""},
           {"return x * m"});
  b.output("mul");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::bernoulli.p", "aten::mul.Tensor"});
}

// torch.no_grad(): target.mul_(0.9).add_(online, alpha=0.1); F.linear(x, target). The region is a graph of its own.
TEST_CASE("a region's lines say what they write in place") {
  Builder b;
  b.input("x", {-1, 8}).weight("target.weight", {8, 8}).weight("online.weight", {8, 8});
  b.real("keep", 0.9F).real("take", 0.1F);
  const auto line = [](::onnx::NodeProto& n, const std::string& name, const std::string& call,
                       const std::string& text) {
    noted_at(n, name, call, {""}, {text});
    n.mutable_metadata_props(3)->set_value("File \"<eval_with_key>.7\", line 5, in forward\n    " + text);
  };
  const std::string mul = "mul_ = torch.ops.aten.mul_.Tensor(p_target_weight, 0.9);  p_target_weight = None",
                    add = "add_ = torch.ops.aten.add_.Tensor(mul_, p_online_weight, alpha = 0.1);  mul_ = None";
  line(b.node("Mul", {"target.weight", "keep"}, {"mul"}), "mul", "mul.Tensor](args = (%p_target_weight, 0.9)", mul);
  line(b.node("Mul", {"online.weight", "take"}, {"val_1"}), "add", "add.Tensor](args = (%mul, %p_online_weight)", add);
  line(b.node("Add", {"mul", "val_1"}, {"add"}), "add", "add.Tensor](args = (%mul, %p_online_weight)", add);
  b.node("MatMul", {"x", "add"}, {"y"});
  b.output("y");
  TrainingSetup inference = with_batch(4);
  inference.mode = Mode::inference;
  const auto tape = b.tape(inference);
  REQUIRE(tape.ok());
  const auto is = [&](std::size_t i, const char* op) { return tape->calls[i].op.starts_with(op); };
  REQUIRE(tape->calls.size() >= 3);
  CHECK(is(0, "aten::mul_."));
  CHECK(is(1, "aten::add_."));
}

TEST_CASE("indices that were worked out ahead of the run, stacked and turned around are those of the call") {
  // x[:, torch.arange(5).unsqueeze(1), at] of x [2, 5, 3, 4] and at [5, 2], whose turn back is one with the next one.
  Builder b;
  b.input("x", {2, 5, 3, 4}).input("at", {5, 2}, ::onnx::TensorProto::INT64);
  b.weight("rows", {5, 2, 1}, ::onnx::TensorProto::INT64).integers("last", {-1});
  const std::string index = "index.Tensor](args = (%x, [None, %unsqueeze, %at])";
  const auto turned = [](::onnx::NodeProto& n, std::initializer_list<std::int64_t> perm) -> ::onnx::NodeProto& {
    Builder::attribute(n, "perm", perm);
    return n;
  };
  noted(turned(b.node("Transpose", {"x"}, {"front"}), {1, 2, 0, 3}), "index", index);
  noted(b.node("Unsqueeze", {"at", "last"}, {"column"}), "index", index);
  auto& stacked = b.node("Concat", {"rows", "column"}, {"stacked"});
  Builder::attribute(stacked, "axis", std::int64_t{-1});
  noted(stacked, "index", index);
  noted(b.node("GatherND", {"front", "stacked"}, {"gathered"}), "index", index);
  noted(turned(b.node("Transpose", {"gathered"}, {"transpose"}), {2, 0, 3, 1}), "transpose",
        "transpose.int](args = (%index, -2, -1)");
  noted(b.node("Exp", {"transpose"}, {"exp"}), "exp", "exp.default](args = (%transpose,)");
  b.output("exp");
  const auto tape = b.tape();
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::empty.memory_format", "aten::index.Tensor", "aten::transpose.int", "aten::exp"});
  CHECK(numbers(tape->calls[0], 0) == std::vector<std::int64_t>{5, 1});
  CHECK(value_at(tape->calls[1], 0) == tape->inputs[0]);
}

TEST_CASE("a copy that a line asks for comes back, and a write by indices is in place") {
  Builder b;
  b.input("x", {-1, 8}).input("at", {4}, ::onnx::TensorProto::INT64).input("y", {4, 8});
  b.integers("last", {-1});
  noted_at(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", {""}, {"h = x.exp().clone()"});
  const std::string put = "index_put.default](args = (%clone, [%at], %y)";
  noted_at(b.node("Unsqueeze", {"at", "last"}, {"rows"}), "index_put", put, {""}, {"h[at] = y"});
  noted_at(b.node("ScatterND", {"exp", "rows", "y"}, {"index_put"}), "index_put", put, {""}, {"h[at] = y"});
  noted_at(b.node("Mul", {"index_put", "exp"}, {"mul"}), "mul", "mul.Tensor](args = (%index_put, %exp)", {""},
           {"return h * e"});
  b.output("mul");
  const auto tape = b.tape(with_batch(16));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::exp", "aten::clone", "aten::index_put_", "aten::mul.Tensor"});
}

// timm 1.0.31, models/rdnet.py: "x = torch.cat(x, 1)" in each block, of a list that holds one tensor in the first.
TEST_CASE("a first block's cat of one tensor stands where the next block has its own") {
  Builder b;
  b.input("x", {-1, 8});
  const std::vector<std::string> joined{"new = block(features)", "x = torch.cat(x, 1)"},
      read{"new = block(features)", "x = self.act(x)", "return exp(x)"};
  noted_at(b.node("Cos", {"x"}, {"cos"}), "cos", "cos.default](args = (%x,)", {"", "stem"},
           {"x = self.stem(x)", "cos(x)"});
  noted_at(b.node("Exp", {"cos"}, {"exp"}), "exp", "exp.default](args = (%cat,)", {"", "blocks.0", "blocks.0.act"},
           read);
  auto& cat = b.node("Concat", {"cos", "exp"}, {"cat_1"});
  Builder::attribute(cat, "axis", std::int64_t{1});
  noted_at(cat, "cat_1", "cat.default](args = ([%cos, %exp], 1)", {"", "blocks.1"}, joined);
  noted_at(b.node("Exp", {"cat_1"}, {"exp_1"}), "exp_1", "exp.default](args = (%cat_1,)",
           {"", "blocks.1", "blocks.1.act"}, read);
  b.output("exp_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::cos", "aten::cat", "aten::exp", "aten::cat", "aten::exp"});
  CHECK(scope_of(*tape, 1).path == "blocks.0");
  CHECK(tape->calls[1].source == "net.py:1 x = torch.cat(x, 1)");
}

// onnxscript's optimizer joins bounds of two clamps and may leave the result out of the file.
TEST_CASE("a bound that nothing produces is a number") {
  Builder b;
  b.input("x", {-1, 8});
  b.node("Clip", {"x", "lost", ""}, {"y"});
  b.output("y");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(std::ranges::any_of(tape->notes, [](const Note& n) { return n.text.find("'lost'") != std::string::npos; }));
  Builder other;
  other.input("x", {-1, 8});
  other.node("Add", {"x", "lost"}, {"y"});
  other.output("y");
  CHECK_FALSE(other.tape(with_batch(4)).ok());
}

// transformers 5.23.0, models/mamba2/modeling_mamba2.py:86: ~torch.tril(torch.ones(n, n)) in each layer's forward.
TEST_CASE("a table that layers make alike and the file keeps once is made in each of them") {
  Builder b;
  b.input("x", {-1, 4, 4}).weight("bitwise_not", {4, 4}, ::onnx::TensorProto::BOOL).real("number", 0);
  noted(b.node("Where", {"bitwise_not", "number", "x"}, {"masked_fill"}), "masked_fill",
        "masked_fill.Scalar](args = (%x, %bitwise_not, 0)", "layers.0");
  noted(b.node("Where", {"bitwise_not", "number", "masked_fill"}, {"masked_fill_1"}), "masked_fill_1",
        "masked_fill.Scalar](args = (%masked_fill, %bitwise_not_1, 0)", "layers.1");
  b.output("masked_fill_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  std::vector<ValueId> masks;
  for (const Call& call : tape->calls)
    if (call.op == "aten::masked_fill.Scalar") masks.push_back(std::get<ValueId>(call.args[1].value));
  REQUIRE(masks.size() == 2);
  CHECK(masks[0] != masks[1]);
}

// transformers 5.23.0, models/pegasus_x/modeling_pegasus_x.py: `.transpose(1, 2).contiguous()`, and `.view(…)` of that
// in a helper. reshape() of a turned tensor is a copy with _unsafe_view instead.
TEST_CASE("a view of a turned tensor's copy reads a copy; what reshape copies is its own") {
  const auto ops = [](const std::string& view) {
    Builder b;
    b.input("x", {-1, 4, 6}).integers("sizes", {0, -1});
    auto& turn = b.node("Transpose", {"x"}, {"transpose"});
    Builder::attribute(turn, "perm", std::initializer_list<std::int64_t>{0, 2, 1});
    noted(turn, "transpose", "transpose.int](args = (%x, 1, 2)", "attn");
    noted(b.node("Reshape", {"transpose", "sizes"}, {view}), view,
          view + ".default](args = (%clone, [%sym_size_int, 24])", "attn");
    b.output(view);
    const auto tape = b.tape(with_batch(4));
    return tape.ok() ? ops_of(*tape) : std::vector<std::string>{tape.error().what};
  };
  CHECK(ops("view") == std::vector<std::string>{"aten::transpose.int", "aten::contiguous", "aten::reshape"});
  CHECK(ops("_unsafe_view") == std::vector<std::string>{"aten::transpose.int", "aten::reshape"});
}
