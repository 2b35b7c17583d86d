// Lines of the exported program that an ONNX file carries at its nodes, where its optimizer changed the nodes.
#include <doctest/doctest.h>

#include <algorithm>

#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

namespace {

void entry(::onnx::NodeProto& n, const std::string& key, const std::string& value) {
  auto* e = n.add_metadata_props();
  e->set_key(key);
  e->set_value(value);
}

void line(::onnx::NodeProto& n, const std::string& name, const std::string& call) {
  entry(n, "pkg.torch.onnx.fx_node",
        "%" + name + " : [num_users=1] = call_function[target=torch.ops.aten." + call + ", kwargs = {})");
}

void module(::onnx::NodeProto& n, const std::string& path, const std::string& trace) {
  entry(n, "pkg.torch.onnx.name_scopes", "['', '" + path + "', 'op']");
  entry(n, "pkg.torch.onnx.class_hierarchy", "['Net', 'Part', 'aten.op.default']");
  entry(n, "pkg.torch.onnx.stack_trace", trace);
}

void signature(Builder& b, const std::vector<std::string>& parameters) {
  std::string text = "\n# inputs\nx: USER_INPUT\n";
  for (const std::string& p : parameters) {
    std::string name = "p_" + p;
    std::replace(name.begin(), name.end(), '.', '_');
    text += name + ": PARAMETER target='" + p + "'\n";
  }
  auto* e = b.graph().add_metadata_props();
  e->set_key("pkg.torch.export.ExportedProgram.graph_signature");
  e->set_value(text);
}

/// relu(m) of 7 numbers, then attention without a mask; its line says that the relu's result is the mask.
Builder misfit() {
  Builder b;
  b.input("m", {7});
  for (const char* name : {"q", "k", "v"}) b.input(name, {-1, 4, 16, 64});
  line(b.node("Relu", {"m"}, {"relu"}), "relu", "relu.default](args = (%m,)");
  const std::string sdpa = "scaled_dot_product_attention";
  const std::string text = sdpa + ".default](args = (%q, %k, %v, %relu)";
  b.real("s", 0.35355339f);
  auto& turn = b.node("Transpose", {"k"}, {"kt"});
  Builder::attribute(turn, "perm", {0, 1, 3, 2});
  line(turn, sdpa, text);
  line(b.node("Mul", {"q", "s"}, {"qs"}), sdpa, text);
  line(b.node("Mul", {"kt", "s"}, {"ks"}), sdpa, text);
  line(b.node("MatMul", {"qs", "ks"}, {"scores"}), sdpa, text);
  line(b.node("Softmax", {"scores"}, {"weights"}), sdpa, text);
  line(b.node("MatMul", {"weights", "v"}, {sdpa}), sdpa, text);
  b.output("relu").output(sdpa);
  return b;
}

bool has_note(const Tape& tape, const std::string& code) {
  return std::any_of(tape.notes.begin(), tape.notes.end(), [&](const Note& n) { return n.code == code; });
}

}  // namespace

TEST_CASE("lines that cannot run make way for the nodes") {
  const auto tape = misfit().tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::relu", "aten::scaled_dot_product_attention"});
  CHECK(tape->calls[1].args[3].is_none());
  REQUIRE(has_note(*tape, "MP024"));
}

TEST_CASE("one line that does not fit its nodes leaves the others alone") {
  // A name that nothing makes: the file is told line by line where lines and nodes agree.
  Builder b = misfit();
  b.input("x", {3});
  auto& lost = b.node("Exp", {"x"}, {"exp"});
  line(lost, "exp", "exp.default](args = (%gone,)");
  b.output("exp");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::relu", "aten::scaled_dot_product_attention", "aten::exp"});
  CHECK(tape->calls[1].args[3].is_none());
  CHECK_FALSE(has_note(*tape, "MP024"));
}

TEST_CASE("equal parameters that the file holds once are those of their modules") {
  // x * (1 + weight) in two modules: weights are equal, so one is stored, and one "1 + weight" is there for both.
  Builder b;
  b.input("x", {-1, 8}).weight("first.weight", {8}).real("one", 1);
  signature(b, {"first.weight", "second.weight"});
  auto* name = b.graph().mutable_initializer(0)->add_metadata_props();
  name->set_key("pkg.torch.onnx.original_node_name");
  name->set_value("p_first_weight");
  auto add = [&](const std::string& path, const std::string& plus, const std::string& in, const std::string& out) {
    auto& n = b.node("Mul", {in, "add"}, {out});
    line(n, out, "mul.Tensor](args = (%" + in + ", %" + plus + ")");
    module(n, path, "");
  };
  auto& plus = b.node("Add", {"first.weight", "one"}, {"add"});
  line(plus, "add", "add.Tensor](args = (%p_first_weight, 1.0)");
  module(plus, "first", "");
  add("first", "add", "x", "mul");
  add("second", "add_1", "mul", "mul_1");
  b.output("mul_1");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::add.Tensor", "aten::mul.Tensor", "aten::add.Tensor", "aten::mul.Tensor"});
  REQUIRE(tape->parameters.size() == 2);
  CHECK(value_of(*tape, "second.weight").sizes == std::vector<std::int64_t>{8});
  const auto* read = std::get_if<ValueId>(&tape->calls[2].args[0].value);
  REQUIRE(read);
  CHECK(tape->values[static_cast<std::size_t>(read->index)].name == "second.weight");
}

// torch.onnx.export of PyTorch 2.11 folds what is made of parameters alone: x + cat((a, b)), x * gamma.view(1, -1) and
// x + table[pairs]. The module has the parameters, and makes the rest in every forward pass.
TEST_CASE("what an optimizer worked out of parameters alone is made of them again") {
  Builder b;
  b.input("x", {-1, 8}).weight("cat", {8}).weight("view", {1, 8}).weight("index", {16, 8});
  signature(b, {"gamma", "q", "v", "table"});
  std::string* text = b.graph().mutable_metadata_props(0)->mutable_value();
  *text += "b_pairs: BUFFER target='pairs' persistent=True\nc_one: CONSTANT_TENSOR target='lifted_tensor_0'\n";
  const auto folded = [&](int initializer, const std::string& from) {
    auto* e = b.graph().mutable_initializer(initializer)->add_metadata_props();
    e->set_key("pkg.onnxscript.optimizer.folded_from");
    e->set_value(from);
  };
  folded(0, "['q', 'v']");
  folded(1, "['gamma', 'val_0']");
  folded(2, "['pairs', 'table', 'val_1']");
  // A name that nothing makes, so that nodes tell the program and not the text.
  line(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%gone,)");
  line(b.node("Add", {"exp", "cat"}, {"add"}), "add", "add.Tensor](args = (%exp, %cat)");
  line(b.node("Mul", {"add", "view"}, {"mul"}), "mul", "mul.Tensor](args = (%add, %view)");
  line(b.node("MatMul", {"index", "mul"}, {"matmul"}), "matmul", "matmul.default](args = (%index, %mul)");
  b.output("matmul");
  const auto tape = b.tape(with_batch(8));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::exp", "aten::cat", "aten::add.Tensor", "aten::view", "aten::mul.Tensor",
                             "aten::index.Tensor", "aten::matmul"});
  REQUIRE(tape->parameters.size() == 4);
  CHECK(value_of(*tape, "q").sizes == std::vector<std::int64_t>{4});
  CHECK(value_of(*tape, "gamma").sizes == std::vector<std::int64_t>{1, 8});
  CHECK(value_of(*tape, "table").sizes == std::vector<std::int64_t>{9, 8});  // 4 positions are a window of 2
  CHECK(value_of(*tape, "pairs").kind == ValueKind::buffer);
  // Of the number that the forward pass makes nothing is missing.
  CHECK(std::ranges::none_of(tape->notes, [](const Note& n) { return n.text.find("no node reads") != n.text.npos; }));
}

TEST_CASE("a weight that weight_norm makes of small parameters is made of them again") {
  for (const bool parametrized : {false, true}) {
    const std::string g = parametrized ? "conv.parametrizations.weight.original0" : "conv.weight_g",
                      v = parametrized ? "conv.parametrizations.weight.original1" : "conv.weight_v";
    Builder b;
    b.input("x", {-1, 3, 8}).weight("mul_2", {4, 3, 3});
    signature(b, {g, v});
    auto* from = b.graph().mutable_initializer(0)->add_metadata_props();
    from->set_key("pkg.onnxscript.optimizer.folded_from");
    from->set_value("['" + g + "', '" + v + "', 'div', 'linalg_vector_norm', 'val_3']");
    line(b.node("Conv", {"x", "mul_2"}, {"conv1d"}), "conv1d", "conv1d.default](args = (%x, %mul_2)");
    b.output("conv1d");
    const auto tape = b.tape(with_batch(2));
    REQUIRE(tape.ok());
    CHECK(ops_of(*tape) == Ops{"aten::_weight_norm", "aten::conv1d"});
    CHECK(value_of(*tape, g).sizes == std::vector<std::int64_t>{4, 1, 1});
    CHECK(value_of(*tape, v).sizes == std::vector<std::int64_t>{4, 3, 3});
  }
}

// With sizes that are all fixed the exporter works out `self.token.expand(x.shape[0], -1)` as well.
TEST_CASE("a parameter that was expanded to the batch ahead of the run is the module's") {
  Builder b;
  b.input("x", {4, 8}).weight("expand", {4, 1});
  signature(b, {"token"});
  auto* from = b.graph().mutable_initializer(0)->add_metadata_props();
  from->set_key("pkg.onnxscript.optimizer.folded_from");
  from->set_value("['token', 'val_0']");
  line(b.node("Concat", {"expand", "x"}, {"cat"}), "cat", "cat.default](args = ([%expand, %x], 1)");
  b.output("cat");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::expand", "aten::cat"});
  REQUIRE(tape->parameters.size() == 1);
  CHECK(value_of(*tape, "token").sizes == std::vector<std::int64_t>{1, 1});
}

// A routing loop adds its bias without a gradient: x + self.bias.detach()
TEST_CASE("a parameter's detach that an optimizer left out ends the gradient") {
  Builder b;
  b.input("x", {-1, 8}).weight("part.bias", {8});
  signature(b, {"part.bias"});
  line(b.node("Exp", {"x"}, {"exp"}), "exp", "exp.default](args = (%x,)");
  line(b.node("Add", {"exp", "part.bias"}, {"add"}), "add", "add.Tensor](args = (%exp, %detach_1)");
  line(b.node("Mul", {"add", "part.bias"}, {"mul"}), "mul", "mul.Tensor](args = (%add, %p_part_bias)");
  b.output("mul");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::exp", "aten::detach", "aten::add.Tensor", "aten::mul.Tensor"});
  CHECK(tape->parameters.size() == 1);
}

TEST_CASE("layers in a region without gradients work on values that want none") {
  Builder b;
  b.input("x", {-1, 8}).weight("part.weight", {8, 8});
  signature(b, {"part.weight"});
  auto* result = b.graph().add_value_info();
  result->set_name("linear");
  auto* type = result->mutable_type()->mutable_tensor_type();
  type->set_elem_type(::onnx::TensorProto::FLOAT);
  type->mutable_shape()->add_dim()->set_dim_param("batch");
  type->mutable_shape()->add_dim()->set_dim_value(8);
  const std::string region = "File \"<eval_with_key>.7\", line 5, in forward\n    linear = linear(x)";
  auto& turn = b.node("Transpose", {"part.weight"}, {"t"});
  Builder::attribute(turn, "perm", {1, 0});
  auto& product = b.node("MatMul", {"x", "t"}, {"linear"});
  for (auto* n : {&turn, &product}) {
    line(*n, "linear", "linear.default](args = (%x, %p_part_weight)");
    module(*n, "part", region);
  }
  auto& last = b.node("Relu", {"linear"}, {"relu"});
  line(last, "relu", "relu.default](args = (%linear,)");
  module(last, "part", "File \"/m/net.py\", line 9, in forward\n    return relu(y)");
  b.output("relu");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::detach", "aten::linear", "aten::relu"});
  // As kept with gradients: the linear's result of 2 x 8 floats.
  const auto note = std::find_if(tape->notes.begin(), tape->notes.end(),
                                 [](const Note& n) { return n.about == About::mode && n.off.has_value(); });
  REQUIRE(note != tape->notes.end());
  CHECK(note->off->above == Bytes(64));
  CHECK(note->off->below == Bytes());

  TrainingSetup inference = with_batch(2);
  inference.mode = Mode::inference;
  CHECK(ops_of(*b.tape(inference)) == Ops{"aten::linear", "aten::relu"});
}

TEST_CASE("a batch norm that was folded into a linear layer or a transposed convolution is a layer again") {
  // 5 channels, as nn.BatchNorm has them: [out] of Gemm's [out, in], [in, out / groups] of ConvTranspose.
  for (const bool linear : {true, false}) {
    Builder b;
    if (linear)
      b.input("x", {-1, 3}).weight("a.weight", {5, 3}).weight("a.bias", {5});
    else
      b.input("x", {-1, 3, 8, 8}).weight("a.weight", {3, 5, 2, 2}).weight("a.bias", {5});
    signature(b, {"a.weight", "a.bias", "n.weight", "n.bias", "n.running_mean", "n.running_var"});
    auto& n = b.node(linear ? "Gemm" : "ConvTranspose", {"x", "a.weight", "a.bias"}, {"getitem"});
    if (linear) Builder::attribute(n, "transB", std::int64_t{1});
    line(n, "_native_batch_norm_legit_functional",
         "_native_batch_norm_legit_functional.default](args = (%before, %p_n_weight, %p_n_bias, %p_n_running_mean, "
         "%p_n_running_var, True, 0.1, 1e-05)");
    b.output("getitem");
    const auto tape = b.tape(with_batch(2));
    REQUIRE(tape.ok());
    CHECK(ops_of(*tape) == Ops{linear ? "aten::linear" : "aten::conv_transpose2d.input", "aten::batch_norm"});
    CHECK(value_of(*tape, "n.running_var").sizes == std::vector<std::int64_t>{5});
  }
}

TEST_CASE("a layer whose norm is the first thing of the next block stands in the frame that calls both") {
  Builder b;
  b.input("x", {-1, 3, 8, 8}).weight("a.weight", {5, 3, 3, 3}).weight("a.bias", {5});
  signature(b, {"a.weight", "b.n.weight", "b.n.bias", "b.n.running_mean", "b.n.running_var"});
  auto& n = b.node("Conv", {"x", "a.weight", "a.bias"}, {"getitem"});
  line(n, "_native_batch_norm_legit_functional",
       "_native_batch_norm_legit_functional.default](args = (%before, %p_b_n_weight, %p_b_n_bias, %p_b_n_running_mean, "
       "%p_b_n_running_var, True, 0.1, 1e-05)");
  entry(n, "pkg.torch.onnx.name_scopes", "['', 'b', 'b.n', 'op']");
  entry(n, "pkg.torch.onnx.class_hierarchy", "['Net', 'Block', 'torch.nn.modules.batchnorm.BatchNorm2d', 'op']");
  entry(n, "pkg.torch.onnx.stack_trace",
        "File \"m.py\", line 2, in forward\n    x = self.b(x)\nFile \"m.py\", line 7, in forward\n"
        "    x = self.n(x)\nFile \"torch/nn/modules/batchnorm.py\", line 194, in forward\n    return F.batch_norm(");
  b.output("getitem");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::conv2d", "aten::batch_norm"});
  const auto scope = [&](std::size_t call) { return tape->scopes[static_cast<std::size_t>(tape->calls[call].scope)]; };
  CHECK(scope(0).path == "a");
  CHECK(scope(0).source == "m.py:2 x = self.b(x)");
  CHECK(scope(1).path == "b.n");
}

TEST_CASE("a group norm's weight is the one that is multiplied, not the ones of its groups") {
  Builder b;
  b.input("x", {-1, 6, 4}).weight("scale", {6, 1}).weight("shift", {6, 1}).weight("ones", {2}).weight("zeros", {2});
  b.integers("grouped", {0, 2, -1}).integers("back", {0, 6, 4});
  signature(b, {"n.weight", "n.bias"});
  const std::string text = "group_norm.default](args = (%x, 2, %p_n_weight, %p_n_bias, 1e-05, False)";
  line(b.node("Reshape", {"x", "grouped"}, {"a"}), "group_norm", text);
  line(b.node("InstanceNormalization", {"a", "ones", "zeros"}, {"b"}), "group_norm", text);
  line(b.node("Reshape", {"b", "back"}, {"c"}), "group_norm", text);
  line(b.node("Mul", {"c", "scale"}, {"d"}), "group_norm", text);
  line(b.node("Add", {"d", "shift"}, {"group_norm"}), "group_norm", text);
  b.output("group_norm");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::group_norm"});
  CHECK(value_of(*tape, "n.weight").sizes == std::vector<std::int64_t>{6});
  CHECK(tape->parameters.size() == 2);
}

// torchvision 0.26, models/video/mvit.py: torch.repeat_interleave(self.temporal_pos, n, dim=0)
TEST_CASE("a parameter that repeat_interleave repeats lies there with one dimension more") {
  Builder b;
  b.weight("spread", {3, 1, 4}).integers("wide", {3, 2, 4}).integers("flat", {6, 4}).input("x", {6, 4});
  signature(b, {"pos"});
  const std::string text = "repeat_interleave.self_int](args = (%p_pos, 2, 0)";
  line(b.node("Expand", {"spread", "wide"}, {"a"}), "repeat_interleave", text);
  line(b.node("Reshape", {"a", "flat"}, {"repeat_interleave"}), "repeat_interleave", text);
  line(b.node("Add", {"repeat_interleave", "x"}, {"add"}), "add", "add.Tensor](args = (%repeat_interleave, %x)");
  b.output("add");
  const auto tape = b.tape(TrainingSetup{});
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::repeat_interleave.self_int", "aten::add.Tensor"});
  CHECK(value_of(*tape, "pos").sizes == std::vector<std::int64_t>{3, 4});
}

// timm 1.0.31, models/metaformer.py:151: x * self.scale.view(self.shape), of scales that are equal to a norm's weight.
TEST_CASE("a view of a parameter that was merged with another module's is the module's own") {
  Builder b;
  b.input("x", {-1, 8}).weight("norm.weight", {8});
  signature(b, {"norm.weight", "scale1.scale", "scale2.scale"});
  const auto in = [](::onnx::NodeProto& n, const std::string& name, const std::string& text, const std::string& path) {
    noted(n, name, text, path);
    auto* trace = n.add_metadata_props();
    trace->set_key("pkg.torch.onnx.stack_trace");
    trace->set_value("File \"m.py\", line 1, in forward\n    return x * self.scale.view(self.shape)");
  };
  in(b.node("Mul", {"x", "norm.weight"}, {"mul"}), "mul", "mul.Tensor](args = (%x, %p_norm_weight)", "norm");
  in(b.node("Mul", {"mul", "norm.weight"}, {"mul_1"}), "mul_1", "mul.Tensor](args = (%mul, %view)", "scale1");
  in(b.node("Mul", {"mul_1", "norm.weight"}, {"mul_2"}), "mul_2", "mul.Tensor](args = (%mul_1, %view_1)", "scale2");
  b.output("mul_2");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  std::vector<std::string> read;
  for (const Call& c : tape->calls)
    if (c.op == "aten::mul.Tensor")
      read.push_back(tape->values[static_cast<std::size_t>(std::get<ValueId>(c.args[1].value).index)].name);
  CHECK(read == std::vector<std::string>{"norm.weight", "scale1.scale", "scale2.scale"});
  CHECK(tape->parameters.size() == 3);
}

TEST_CASE("a recurrent layer whose biases and first states were joined has its own again") {
  // nn.LSTM(3, 4): weight_ih [16, 3], weight_hh [16, 4], two biases [16], two first states.
  for (const bool complete : {true, false}) {
    Builder b;
    b.input("x", {5, -1, 3})
        .weight("val_1", {1, 16, 3})
        .weight("val_2", {1, 16, 4})
        .weight("val_3", {1, 32})
        .real("zero", 0);
    b.integers("state", {1, 2, 4}).integers("axes", {1});
    signature(b, {"l.weight_ih", "l.weight_hh", "l.bias_ih", "l.bias_hh"});
    line(b.node("Expand", {"zero", "state"}, {"zeros"}), "zeros", "zeros.default](args = ([1, 2, 4],)");
    const std::string text =
        "lstm.input](args = (%x, [%zeros, %zeros_1], [%p_l_weight_ih, %p_l_weight_hh, %p_l_bias_ih, %p_l_bias_hh], "
        "True, 1, 0.0, True, False, False)";
    auto& n = b.node("LSTM", {"x", "val_1", "val_2", "val_3", "", "zeros", "zeros"}, {"y"});
    Builder::attribute(n, "hidden_size", std::int64_t{4});
    line(n, "lstm", text);
    line(b.node("Squeeze", {"y", "axes"}, {"getitem"}), "lstm", text);
    // Where a name is gone, the text alone no longer tells the program.
    line(b.node("Relu", {"getitem"}, {"relu"}), "relu",
         complete ? "relu.default](args = (%getitem,)" : "relu.default](args = (%slice_1,)");
    b.output("relu");
    const auto tape = b.tape(with_batch(2));
    REQUIRE(tape.ok());
    CHECK(ops_of(*tape) == Ops{"aten::zeros", "aten::zeros", "aten::lstm.input", "aten::relu"});
    CHECK(tape->parameters.size() == 4);
    CHECK(value_of(*tape, "l.bias_hh").sizes == std::vector<std::int64_t>{16});
    CHECK(value_of(*tape, "l.weight_hh").sizes == std::vector<std::int64_t>{16, 4});
  }
}

TEST_CASE("x.max(dim) makes its indices, even where nobody reads them") {
  Builder b;
  b.input("x", {-1, 6}).integers("axes", {1});
  line(b.node("ReduceMax", {"x", "axes"}, {"getitem"}), "max_1", "max.dim](args = (%gone, 1)");
  b.output("getitem");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::max.dim"});
}

// timm 1.0.31, layers/std_conv.py: F.batch_norm(weight.reshape(1, out, -1), None, None, weight=(gain * scale).view(-1),
// training=True). The exporter works the statistics out by nodes, or folds all of it where the weight is small.
TEST_CASE("a weight that is standardized in each forward pass is made by the call of the program") {
  Builder b;
  b.input("x", {-1, 3, 8, 8}).weight("conv.weight", {4, 3, 3, 3}).weight("view_1", {4}).weight("view_5", {2, 4, 1, 1});
  b.integers("rows", {1, 4, -1}).integers("sizes", {4, 3, 3, 3}).integers("axes", {0, 2});
  b.weight("zeros", {4});
  signature(b, {"conv.weight", "conv.gain", "next.weight", "next.gain"});
  const auto folded = [&](int initializer, const std::string& from) {
    auto* e = b.graph().mutable_initializer(initializer)->add_metadata_props();
    e->set_key("pkg.onnxscript.optimizer.folded_from");
    e->set_value(from);
  };
  folded(1, "['conv.gain', 'mul', 'val_0']");
  folded(2, "['getitem_3', 'mul_2', 'next.gain', 'next.weight', 'val_9']");
  const std::string norm = "_native_batch_norm_legit.no_stats](args = (%view, %view_1, None, True, 0.0, 1e-05)";
  line(b.node("Reshape", {"conv.weight", "rows"}, {"view"}), "view",
       "view.default](args = (%p_conv_weight, [1, 4, -1])");
  line(b.node("ReduceMean", {"view", "axes"}, {"mean"}), "norm", norm);
  line(b.node("Sub", {"view", "mean"}, {"sub"}), "norm", norm);
  line(b.node("Mul", {"sub", "sub"}, {"square"}), "norm", norm);
  line(b.node("ReduceMean", {"square", "axes"}, {"variance"}), "norm", norm);
  line(b.node("BatchNormalization", {"view", "view_1", "zeros", "mean", "variance"}, {"getitem"}), "norm", norm);
  line(b.node("Reshape", {"getitem", "sizes"}, {"view_2"}), "view_2", "view.default](args = (%getitem, [4, 3, 3, 3])");
  line(b.node("Conv", {"x", "view_2"}, {"conv2d"}), "conv2d", "conv2d.default](args = (%gone, %view_2)");
  line(b.node("Conv", {"conv2d", "view_5"}, {"conv2d_1"}), "conv2d_1", "conv2d.default](args = (%conv2d, %view_5)");
  b.output("conv2d_1");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  const auto count = [&](std::string_view op) {
    return std::ranges::count_if(tape->calls, [&](const Call& c) { return c.op == op; });
  };
  CHECK(count("aten::batch_norm") == 2);
  CHECK(count("aten::mul.Tensor") == 2);  // the gains
  CHECK(count("aten::sub.Tensor") == 0);
  CHECK(value_of(*tape, "conv.gain").sizes == std::vector<std::int64_t>{4});
  CHECK(value_of(*tape, "next.weight").sizes == std::vector<std::int64_t>{2, 4, 1, 1});
  CHECK(value_of(*tape, "next.gain").sizes == std::vector<std::int64_t>{2, 1, 1, 1});
  for (const Call& c : tape->calls)
    if (c.op == "aten::batch_norm") CHECK(std::get<bool>(c.args[5].value));
}
