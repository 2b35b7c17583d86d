// Calls that the exporter's optimizer merged or left out of an ONNX file, by the names that its lines still have.
#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/frontends/onnx/stage_sizes.h"
#include "estimators/frontends/onnx/unread_sizes.h"
#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using memplan::onnx_format::KnownSizes;
using memplan::onnx_format::NextStages;
using memplan::onnx_format::of_towers;
using memplan::onnx_format::sizes_of_like_names;
using memplan::onnx_format::stage_of;
using memplan::onnx_format::UsualSizes;
using Ops = std::vector<std::string>;
using Sizes = std::vector<std::int64_t>;

namespace {

/// x.transpose(1, 2) of module "attn", made by that line.
::onnx::NodeProto& noted_node(Builder& b, const std::string& line) {
  auto& n = b.node("Transpose", {"x"}, {"turned"});
  Builder::attribute(n, "perm", std::initializer_list<std::int64_t>{0, 2, 1});
  noted(n, "transpose", "transpose.int](args = (%x, 1, 2)", "attn");
  auto* trace = n.add_metadata_props();
  trace->set_key("pkg.torch.onnx.stack_trace");
  trace->set_value("File \"m.py\", line 1, in forward\n    " + line);
  return n;
}

std::size_t count(const Tape& tape, const std::string& op) {
  return static_cast<std::size_t>(std::ranges::count(tape.calls, op, &Call::op));
}

std::string module_of_call(const Tape& tape, const Call& call) {
  return call.scope < 0 ? std::string() : tape.scopes[static_cast<std::size_t>(call.scope)].path;
}

}  // namespace

TEST_CASE("a call that was merged with an equal one of its module is made twice") {
  // (x - mean) ** 2 and (x - mean) * y: the program subtracts twice, the file once.
  Builder b;
  b.input("x", {-1, 8}).input("mean", {-1, 1}).input("y", {-1, 8});
  b.real("two", 2);
  noted(b.node("Sub", {"x", "mean"}, {"sub"}), "sub", "sub.Tensor](args = (%x, %mean)", "norm");
  noted(b.node("Pow", {"sub", "two"}, {"pow_1"}), "pow_1", "pow.Tensor_Scalar](args = (%sub, 2)", "norm");
  noted(b.node("Mul", {"sub", "y"}, {"mul"}), "mul", "mul.Tensor](args = (%sub_1, %y)", "norm");
  b.output("pow_1").output("mul");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::sub.Tensor", "aten::pow.Tensor_Scalar", "aten::sub.Tensor", "aten::mul.Tensor"});
  CHECK(std::get<ValueId>(tape->calls[3].args[0].value) == tape->calls[2].outputs[0]);
}

// transformers 5.23.0, models/hyperclovax/modeling_hyperclovax.py:325: residual + hidden_states *
// self.residual_multiplier
TEST_CASE("what the one user of a call made of it and nobody reads had a neutral number") {
  Builder b;
  b.input("x", {-1, 8}).input("y", {-1, 8});
  noted(b.node("Mul", {"x", "y"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %y)", "norm");
  noted(b.node("Add", {"x", "mul"}, {"add"}), "add", "add.Tensor](args = (%x, %mul_1)", "");
  b.output("add");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::mul.Tensor", "aten::mul.Tensor", "aten::add.Tensor"});
  CHECK(std::get<double>(tape->calls[1].args[1].value) == 1.0);
  CHECK(std::get<ValueId>(tape->calls[1].args[0].value) == tape->calls[0].outputs[0]);
}

TEST_CASE("what a module of another layer computed alike is made for each layer") {
  // cos(exp(x)) in two layers, merged into the first one's.
  Builder b;
  b.input("x", {-1, 8});
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "layers.0.attn");
  noted(b.node("Cos", {"exp"}, {"cos"}), "cos", "cos.default](args = (%exp,)", "layers.0.attn");
  noted(b.node("Mul", {"x", "cos"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %cos)", "layers.0.attn");
  noted(b.node("Mul", {"mul", "cos"}, {"mul_1"}), "mul_1", "mul.Tensor](args = (%mul, %cos_1)", "layers.1.attn");
  b.output("mul_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(count(*tape, "aten::exp") == 2);
  CHECK(count(*tape, "aten::cos") == 2);
  CHECK(module_of_call(*tape, tape->calls[tape->calls.size() - 2]) == "layers.1.attn");
}

TEST_CASE("what is shared by name stays shared") {
  // The same graph; the second layer's line says that it reads the first one's result.
  Builder b;
  b.input("x", {-1, 8});
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "layers.0.attn");
  noted(b.node("Mul", {"x", "exp"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %exp)", "layers.0.attn");
  noted(b.node("Mul", {"mul", "exp"}, {"mul_1"}), "mul_1", "mul.Tensor](args = (%mul, %exp)", "layers.1.attn");
  b.output("mul_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(count(*tape, "aten::exp") == 1);
}

// peft 0.21.2, tuners/lora/layer.py:1102: lora_B(lora_A(dropout(x))), of two adapters on one input.
TEST_CASE("a dropout of another module on the same input is made there") {
  const auto dropped = [](const std::string& one, const std::string& other, const char* other_class) {
    // A node of "q" or "v" of an attention, in the module `leaf` of that one.
    const auto placed = [&](::onnx::NodeProto& n, const std::string& name, const std::string& call,
                            const std::string& path, const std::string& leaf) {
      noted(n, name, call, path + "." + leaf);
      const std::string kind = path == one ? "Adapter" : other_class;
      n.mutable_metadata_props(1)->set_value("['', '" + path + "', '" + path + "." + leaf + "', '" + name + "']");
      n.mutable_metadata_props(2)->set_value("['Net', '" + kind + "', 'Leaf', 'aten.op.default']");
      auto* trace = n.add_metadata_props();
      trace->set_key("pkg.torch.onnx.stack_trace");
      trace->set_value("File \"net.py\", line 1, in forward\n    " + path + " = self." + path +
                       "(x)\n  File \"adapter.py\", line 2, in forward\n    return self.exp(self.drop(x))\n" +
                       "  File \"leaf.py\", line 3, in forward\n    return " + leaf + "(x)\n");
    };
    Builder b;
    b.input("x", {-1, 8});
    b.real("ratio", 0.1F);
    Builder::fill(*b.graph().add_node(), "Constant", {}, {"training"});
    auto* value = b.graph().mutable_node(0)->add_attribute();
    value->set_name("value");
    value->set_type(::onnx::AttributeProto::TENSOR);
    value->mutable_t()->set_data_type(::onnx::TensorProto::BOOL);
    value->mutable_t()->add_int32_data(1);
    placed(b.node("Dropout", {"x", "ratio", "training"}, {"getitem"}), "native_dropout",
           "native_dropout.default](args = (%x, 0.1, True)", one, "drop");
    placed(b.node("Exp", {"getitem"}, {"exp"}), "exp", "exp.default](args = (%getitem,)", one, "exp");
    placed(b.node("Cos", {"getitem"}, {"cos"}), "cos", "cos.default](args = (%getitem_2,)", other, "cos");
    b.output("exp").output("cos");
    const auto tape = b.tape(with_batch(4));
    REQUIRE(tape.ok());
    std::vector<std::string> out;
    for (const Call& c : tape->calls)
      if (c.op == "aten::dropout") {
        const Scope& s = tape->scopes[static_cast<std::size_t>(c.scope)];
        out.push_back(s.path + " | " + tape->scopes[static_cast<std::size_t>(s.parent)].source);
      }
    return out;
  };
  using Lines = std::vector<std::string>;
  CHECK(dropped("q", "v", "Adapter") == Lines{"q.drop | net.py:1 q = self.q(x)", "v.drop | net.py:1 v = self.v(x)"});
  CHECK(dropped("down.0", "up.1", "Adapter") ==
        Lines{"down.0.drop | net.py:1 down.0 = self.down.0(x)", "up.1.drop | net.py:1 up.1 = self.up.1(x)"});
  CHECK(dropped("q", "v", "Other")[1].starts_with("q.drop"));
}

// own code (DINO): teacher(images) under no_grad and student(images) join the same images
TEST_CASE("a step that a region without gradients made as well stands in the line that calls it") {
  const auto traced = [](::onnx::NodeProto& n, const std::string& trace) {
    auto* p = n.add_metadata_props();
    p->set_key("pkg.torch.onnx.stack_trace");
    p->set_value(trace);
  };
  Builder b;
  b.input("x", {-1, 8});
  auto& exp = b.node("Exp", {"x"}, {"exp"});
  noted(exp, "exp", "exp.default](args = (%x,)", "");
  traced(exp, "File \"<eval_with_key>.7\", line 5, in forward\n    exp = torch.ops.aten.exp.default(x)");
  auto& sin = b.node("Sin", {"exp"}, {"sin"});
  noted(sin, "sin", "sin.default](args = (%exp,)", "");
  traced(sin, "File \"<eval_with_key>.7\", line 6, in forward\n    sin = torch.ops.aten.sin.default(exp)");
  auto& cos = b.node("Cos", {"exp"}, {"cos"});
  noted(cos, "cos", "cos.default](args = (%exp_1,)", "student.net");
  cos.mutable_metadata_props(1)->set_value("['', 'student', 'student.net', 'cos']");
  cos.mutable_metadata_props(2)->set_value("['Model', 'Wrapper', 'Net', 'aten.cos.default']");
  traced(cos,
         "File \"m.py\", line 1, in forward\n    y = self.student(x)\n  File \"m.py\", line 2, in forward\n    "
         "out.append(self.net(torch.exp(x)))\n  File \"m.py\", line 3, in forward\n    return x.cos()\n");
  b.output("sin").output("cos");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  REQUIRE(count(*tape, "aten::exp") == 2);
  const auto again = std::ranges::find(tape->calls.rbegin(), tape->calls.rend(), "aten::exp", &Call::op);
  CHECK(module_of_call(*tape, *again) == "student");
  CHECK(again->source == "m.py:2 out.append(self.net(torch.exp(x)))");
}

TEST_CASE("a product with one that an optimizer left out makes a tensor all the same") {
  // cos = emb.cos() * self.scaling, where scaling is 1.
  Builder b;
  b.input("x", {-1, 8});
  noted(b.node("Cos", {"x"}, {"cos"}), "cos", "cos.default](args = (%x,)", "rotary");
  noted(b.node("Exp", {"cos"}, {"exp"}), "exp", "exp.default](args = (%mul,)", "attn");
  b.output("exp");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::cos", "aten::mul.Tensor", "aten::exp"});
  CHECK(module_of_call(*tape, tape->calls[1]) == "rotary");
}

TEST_CASE("a copy of a view that an optimizer left out is made where the view is none") {
  // exp(x.transpose(1, 2).contiguous()), and a dropout of x, which leaves the same name and does nothing.
  Builder b;
  b.input("x", {-1, 4, 8});
  auto& turn = b.node("Transpose", {"x"}, {"transpose"});
  Builder::attribute(turn, "perm", {0, 2, 1});
  noted(turn, "transpose", "transpose.int](args = (%x, 1, 2)", "net");
  noted(b.node("Exp", {"transpose"}, {"exp"}), "exp", "exp.default](args = (%clone,)", "net");
  noted(b.node("Exp", {"exp"}, {"exp_1"}), "exp_1", "exp.default](args = (%clone_1,)", "net");
  b.output("exp_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::transpose.int", "aten::contiguous", "aten::exp", "aten::exp"});
}

// timm 1.0.31, models/gcvit.py: "x = x.permute(0, 3, 1, 2).contiguous()" in front of a norm that turns it back.
TEST_CASE("a turn that the next one undoes comes back, with the copy between them") {
  Builder b;
  b.input("x", {-1, 4, 4, 8});
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "stage");
  noted(b.node("Identity", {"exp"}, {"permute_1"}), "permute_1", "permute.default](args = (%clone, [0, 2, 3, 1])",
        "norm");
  noted(b.node("Cos", {"permute_1"}, {"cos"}), "cos", "cos.default](args = (%permute_1,)", "norm");
  b.output("cos");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::exp", "aten::permute", "aten::contiguous", "aten::permute", "aten::cos"});
  std::vector<std::int64_t> turned;
  for (const Arg& axis : std::get<Arg::List>(tape->calls[1].args[1].value))
    turned.push_back(std::get<std::int64_t>(axis.value));
  CHECK(turned == std::vector<std::int64_t>{0, 3, 1, 2});
}

TEST_CASE("a write into a slice of a slice turns what the inner write has made back first") {
  // y[:, :3, 2:4] = x: each write has its dimension turned to the front, and the turn back is one with the next.
  Builder b;
  b.input("y", {-1, 4, 8}).input("x", {-1, 3, 2});
  b.integers("rows", {2, 3}).integers("places", {0, 1, 2});
  const std::string inner = "slice_scatter.default](args = (%slice_1, %x, 2, 2, 4)",
                    outer = "slice_scatter.default](args = (%y, %slice_scatter, 1, 0, 3)";
  const auto turn = [&](const std::string& from, const std::string& to, std::initializer_list<std::int64_t> axes,
                        const std::string& name, const std::string& text) {
    auto& n = b.node("Transpose", {from}, {to});
    Builder::attribute(n, "perm", axes);
    noted(n, name, text, "block");
  };
  b.integers("starts", {0}).integers("ends", {3}).integers("axes", {1});
  noted(b.node("Slice", {"y", "starts", "ends", "axes"}, {"slice_1"}), "slice_1", "slice.Tensor](args = (%y, 1, 0, 3)",
        "block");
  turn("slice_1", "a", {2, 1, 0}, "slice_scatter", inner);
  turn("x", "b", {2, 1, 0}, "slice_scatter", inner);
  noted(b.node("ScatterND", {"a", "rows", "b"}, {"c"}), "slice_scatter", inner, "block");
  turn("y", "d", {1, 0, 2}, "slice_scatter_1", outer);
  turn("c", "e", {1, 2, 0}, "slice_scatter_1", outer);  // [2, 1, 0], and [1, 0, 2]
  noted(b.node("ScatterND", {"d", "places", "e"}, {"f"}), "slice_scatter_1", outer, "block");
  turn("f", "slice_scatter_1", {1, 0, 2}, "slice_scatter_1", outer);
  b.output("slice_scatter_1");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(count(*tape, "aten::slice_scatter") + count(*tape, "aten::copy_") == 2);
  CHECK(count(*tape, "aten::index_put") == 0);
}

TEST_CASE("numbers of names tell which calls are lost") {
  Builder b;
  b.input("x", {-1, 8});
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "net");
  noted(b.node("Exp", {"exp"}, {"exp_2"}), "exp_2", "exp.default](args = (%exp,)", "net");
  noted(b.node("Abs", {"exp_2"}, {"abs_1"}), "abs_1", "abs.default](args = (%exp_2,)", "net");  // no call is "abs"
  b.output("abs_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(tape->exported.left_out == std::vector<std::string>{"exp_1"});
}

// A bootstrapped target: reward + 0.99 * self.q(after).detach()
TEST_CASE("a detach that an optimizer left out ends the gradient") {
  Builder b;
  b.input("x", {-1, 8});
  b.real("gamma", 0.99F);
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "q");
  noted(b.node("Mul", {"exp", "gamma"}, {"mul"}), "mul", "mul.Tensor](args = (%detach, 0.99)", "target");
  b.output("mul");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::exp", "aten::detach", "aten::mul.Tensor"});
}

// nn.MultiheadAttention.forward ends with "return attn_output.transpose(1, 0), weights"; a dropout of 0 follows it.
TEST_CASE("a copy after a view that a module returns is a dropout that does nothing") {
  const auto ops = [](const char* line) {
    Builder b;
    b.input("x", {-1, 8, 2});
    noted_node(b, line);
    noted(b.node("Exp", {"turned"}, {"exp"}), "exp", "exp.default](args = (%clone,)", "block");
    b.output("exp");
    const auto tape = b.tape(with_batch(4));
    REQUIRE(tape.ok());
    return ops_of(*tape);
  };
  CHECK(ops("return y.transpose(1, 2)") == Ops{"aten::transpose.int", "aten::exp"});
  CHECK(ops("return turned(y)") == Ops{"aten::transpose.int", "aten::contiguous", "aten::exp"});
}

TEST_CASE("two bounds after each other, which an optimizer made one, are two calls again") {
  for (const std::string gone : {"relu", "clamp"}) {
    Builder b;
    b.input("x", {-1, 8}).real("low", 0).real("high", 1);
    noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "");
    noted(b.node("Clip", {"exp", "low", "high"}, {"hardtanh"}), "hardtanh",
          "clamp.default](args = (%" + gone + ", 0.0, 1.0)", "");
    b.output("hardtanh");
    const auto tape = b.tape(with_batch(4));
    REQUIRE(tape.ok());
    CHECK(ops_of(*tape) == Ops{"aten::exp", "aten::" + gone, "aten::clamp"});
  }
}

TEST_CASE("a step of a call that another one's own was merged with is made for both") {
  // F.silu(x) is x * sigmoid(x) in ONNX; y * torch.sigmoid(x) reads the same sigmoid.
  Builder b;
  b.input("x", {-1, 8}).input("y", {-1, 8});
  noted(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)", "");
  noted(b.node("Sigmoid", {"exp"}, {"val_1"}), "silu", "silu.default](args = (%exp,)", "");
  noted(b.node("Mul", {"exp", "val_1"}, {"silu"}), "silu", "silu.default](args = (%exp,)", "");
  noted(b.node("Mul", {"y", "val_1"}, {"mul"}), "mul", "mul.Tensor](args = (%y, %sigmoid)", "");
  b.output("silu").output("mul");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::exp", "aten::silu", "aten::sigmoid", "aten::mul.Tensor"});
}

TEST_CASE("calls that share steps have all of them again") {
  // Differential attention: softmax(q @ k) is there once, for two values. The op stands for one that takes several
  // nodes.
  Builder b;
  b.input("q", {-1, 4, 8}).input("k", {-1, 8, 4}).input("v", {-1, 4, 8}).input("w", {-1, 4, 8});
  const std::string call = "scaled_dot_product_attention.default](args = (%exp, %transpose, ";
  noted(b.node("Exp", {"q"}, {"exp"}), "exp", "exp.default](args = (%q,)", "attn");
  auto& turn = b.node("Transpose", {"k"}, {"transpose"});
  Builder::attribute(turn, "perm", {0, 2, 1});
  noted(turn, "transpose", "transpose.int](args = (%k, 1, 2)", "attn");
  auto& back = b.node("Transpose", {"transpose"}, {"back"});
  Builder::attribute(back, "perm", {0, 2, 1});
  noted(back, "sdpa", call + "%v)", "attn");
  noted(b.node("MatMul", {"exp", "back"}, {"scores"}), "sdpa", call + "%v)", "attn");
  noted(b.node("Softmax", {"scores"}, {"weights"}), "sdpa", call + "%v)", "attn");
  noted(b.node("MatMul", {"weights", "v"}, {"sdpa"}), "sdpa", call + "%v)", "attn");
  noted(b.node("MatMul", {"weights", "w"}, {"sdpa_1"}), "sdpa_1", call + "%w)", "attn");
  b.known("exp", {-1, 4, 8}).known("transpose", {-1, 4, 8});
  b.output("sdpa").output("sdpa_1");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(count(*tape, "aten::scaled_dot_product_attention") == 2);
  CHECK(count(*tape, "aten::softmax.int") == 0);
}

TEST_CASE("sizes of parameters that no node reads") {
  const KnownSizes known{{"dec.layers.0.self_attn.k_proj.weight", {64, 32}},
                         {"dec.layers.0.self_attn.norm.weight", {32}},
                         {"dec.layers.1.mlp.fc.weight", {128, 32}},
                         {"dec.head.weight", {9, 32}}};
  CHECK(sizes_of_like_names("dec.layers.0.cross_attn.k_proj.weight", known) == Sizes{64, 32});  // next to it
  CHECK(sizes_of_like_names("dec.layers.0.mlp.fc.weight", known) == Sizes{128, 32});            // but for numbers
  CHECK(sizes_of_like_names("dec.head.bias", known) == Sizes{9});
  CHECK(sizes_of_like_names("dec.layers.0.cross_attn_layer_norm.weight", known) == Sizes{32});
  CHECK(sizes_of_like_names("dec.pooler.dense.weight", known) == Sizes{32, 32});
  CHECK(sizes_of_like_names("dec.pooler.dense.bias", known) == Sizes{32});
  // models/dinov2/modeling_dinov2.py:40 and models/wav2vec2/modeling_wav2vec2.py:1275 of transformers 5.23.
  const KnownSizes tokens{{"vit.embeddings.cls_token", {1, 1, 48}},
                          {"focal.embeddings.patch.projection.weight", {96, 3, 4, 4}},
                          {"speech.encoder.layers.0.layer_norm.weight", {64}},
                          {"net.bn.weight", {24}},
                          {"net.head.modules_to_save.default.weight", {2, 24}}};
  CHECK(sizes_of_like_names("vit.embeddings.mask_token", tokens) == Sizes{48});
  CHECK(sizes_of_like_names("focal.embeddings.mask_token", tokens) == Sizes{96});
  CHECK(sizes_of_like_names("speech.masked_spec_embed", tokens) == Sizes{64});
  CHECK(sizes_of_like_names("net.bn.running_var", tokens) == Sizes{24});
  // ModulesToSaveWrapper of peft/utils/other.py.
  CHECK(sizes_of_like_names("net.head.original_module.weight", tokens) == Sizes{2, 24});
  CHECK(sizes_of_like_names("net.head.original_module.bias", tokens) == std::nullopt);
  // A target network is as the network is, but not as one that differs in another parameter.
  const KnownSizes twins{{"critic.trunk.0.weight", {50, 99}},
                         {"critic.trunk.1.weight", {50}},
                         {"target.trunk.0.weight", {50, 99}},
                         {"actor.trunk.0.weight", {40, 99}},
                         {"actor.trunk.1.weight", {40}}};
  CHECK(sizes_of_like_names("target.trunk.1.weight", twins) == Sizes{50});
  CHECK_FALSE(sizes_of_like_names("other.mask_token", tokens));
  CHECK_FALSE(sizes_of_like_names("vision.layers.0.attn.k_proj.weight", known));
  CHECK_FALSE(sizes_of_like_names("dec.projection.weight", known));
}

TEST_CASE("a tower that an export did not call is as large as most of the file") {
  const KnownSizes known{{"text.layers.0.attn.q_proj.weight", {8, 8}},
                         {"text.layers.1.attn.q_proj.weight", {8, 8}},
                         {"text.layers.0.norm.weight", {8}},
                         {"text.layers.1.norm.weight", {8}},
                         {"text.layers.0.up.weight", {32, 8}},
                         {"text.layers.1.up.weight", {32, 8}},
                         {"text.embed.weight", {1000, 8}}};
  const UsualSizes usual(known);
  CHECK(usual.sizes_of("vision.blocks.0.attn.q_proj.weight") == Sizes{8, 8});  // the same last parts
  CHECK(usual.sizes_of("vision.blocks.0.norm1.weight") == Sizes{8});
  CHECK(usual.sizes_of("vision.blocks.0.qkv.bias") == Sizes{8});
  CHECK(usual.sizes_of("vision.blocks.0.qkv.weight") == Sizes{16, 8});  // between 64 and 256 numbers: 128
  CHECK_FALSE(usual.sizes_of("vision.position"));
  CHECK_FALSE(UsualSizes({}).sizes_of("vision.blocks.0.qkv.weight"));
  std::vector<std::string> lost{"text.shared.weight", "text.layers.0.extra.weight"};
  for (int i = 0; i < 8; ++i) lost.push_back("vision.blocks." + std::to_string(i) + ".qkv.weight");
  const std::vector<bool> towers = of_towers(lost, known);
  CHECK_FALSE(towers[0]);  // may be another name of a tensor that the file has
  CHECK_FALSE(towers[1]);
  CHECK(std::all_of(towers.begin() + 2, towers.end(), [](bool of) { return of; }));
}

TEST_CASE("parameters of a stage that no node reads grow as the stages before it do") {
  // ResNet-18 of torchvision: sizes of layer3 and layer4 are those of torchvision/models/resnet.py.
  const KnownSizes known{{"encoder.conv1.weight", {64, 3, 7, 7}},
                         {"encoder.layer1.0.conv1.weight", {64, 64, 3, 3}},
                         {"encoder.layer1.1.conv1.weight", {64, 64, 3, 3}},
                         {"encoder.layer1.1.bn1.weight", {64}},
                         {"encoder.layer2.0.conv1.weight", {128, 64, 3, 3}},
                         {"encoder.layer2.0.downsample.0.weight", {128, 64, 1, 1}},
                         {"encoder.layer2.1.conv1.weight", {128, 128, 3, 3}},
                         {"encoder.layer2.1.bn1.weight", {128}}};
  CHECK(NextStages(known).sizes_of("encoder.layer3.0.conv1.weight") == Sizes{256, 128, 3, 3});
  CHECK(NextStages(known).sizes_of("encoder.layer3.0.downsample.0.weight") == Sizes{256, 128, 1, 1});
  CHECK(NextStages(known).sizes_of("encoder.layer3.1.bn1.weight") == Sizes{256});
  CHECK(NextStages(known).sizes_of("encoder.layer3.5.conv1.weight") == Sizes{256, 256, 3, 3});  // more blocks
  // One factor for all, or none.
  const KnownSizes uneven{{"stages.0.fc.weight", {32, 32}},
                          {"stages.0.out.weight", {32, 9}},
                          {"stages.1.fc.weight", {64, 64}},
                          {"stages.1.out.weight", {64, 27}}};
  CHECK_FALSE(NextStages(uneven).sizes_of("stages.2.fc.weight"));
  // Stages that do not grow say nothing.
  const KnownSizes even{{"stages.0.fc.weight", {32, 32}}, {"stages.1.fc.weight", {32, 32}}};
  CHECK_FALSE(NextStages(even).sizes_of("stages.2.fc.weight"));
  CHECK(stage_of("encoder.layer3.0.conv1.weight") == "encoder.layer3.");
  CHECK(stage_of("encoder.layer1.0.conv1.weight").empty());
}
