// Files that carry nothing but ONNX ops: shapes are followed, numbers fold, every node gives the call that PyTorch
// runs.
#include <doctest/doctest.h>

#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

TEST_CASE("arithmetic on sizes folds once the dimensions are bound") {
  // x.view(x.size(0), -1) as torch.onnx.export(dynamo=False) writes it.
  Builder b;
  b.input("x", {-1, 3, 8, 8})
      .integers("zero", {0}, true)
      .integers("axes", std::initializer_list<std::int64_t>{0})
      .integers("minus", {-1});
  b.node("Shape", {"x"}, {"shape"});
  Builder::attribute(b.node("Gather", {"shape", "zero"}, {"n"}), "axis", std::int64_t{0});
  b.node("Unsqueeze", {"n", "axes"}, {"n1"});
  Builder::attribute(b.node("Concat", {"n1", "minus"}, {"sizes"}), "axis", std::int64_t{0});
  b.node("Reshape", {"x", "sizes"}, {"y"});
  b.output("y");
  const auto tape = b.tape(with_batch(5));
  REQUIRE(tape.ok());
  REQUIRE(ops_of(*tape) == Ops{"aten::reshape"});
  CHECK(numbers(tape->calls[0], 1) == std::vector<std::int64_t>{5, 192});
}

TEST_CASE("a convolution net: parameters, buffers and calls") {
  Builder b;
  b.input("x", {-1, 3, 32, 32}).weight("conv.weight", {8, 3, 3, 3}).weight("bn.weight", {8}).weight("bn.bias", {8});
  b.weight("bn.running_mean", {8}).weight("bn.running_var", {8}).weight("fc.weight", {10, 8}).weight("fc.bias", {10});
  auto& conv = b.node("Conv", {"x", "conv.weight"}, {"c"}, "/conv/Conv");
  Builder::attribute(conv, "pads", {1, 1, 1, 1});
  Builder::attribute(conv, "strides", {2, 2});
  b.node("BatchNormalization", {"c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, {"n"},
         "/bn/BatchNormalization");
  b.node("Relu", {"n"}, {"r"}, "/relu/Relu");
  b.node("GlobalAveragePool", {"r"}, {"p"}, "/pool/GlobalAveragePool");
  b.node("Flatten", {"p"}, {"f"}, "/Flatten");
  auto& gemm = b.node("Gemm", {"f", "fc.weight", "fc.bias"}, {"y"}, "/fc/Gemm");
  Builder::attribute(gemm, "transB", std::int64_t{1});
  b.output("y");
  const auto tape = b.tape(with_batch(4));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) ==
        Ops{"aten::conv2d", "aten::batch_norm", "aten::relu", "aten::mean.dim", "aten::reshape", "aten::linear"});
  CHECK(numbers(tape->calls[0], 3) == std::vector<std::int64_t>{2, 2});
  CHECK(numbers(tape->calls[4], 1) == std::vector<std::int64_t>{4, 8});
  CHECK(tape->parameters.size() == 5);
  // Two statistics and the step counter that training keeps beside them.
  CHECK(tape->buffers.size() == 3);
  CHECK(value_of(*tape, "bn.running_mean").kind == ValueKind::buffer);
  CHECK(value_of(*tape, "bn.num_batches_tracked").dtype == DType::int64);
  CHECK(tape->scopes[static_cast<std::size_t>(tape->calls[0].scope)].path == "conv");
  // The batch norm trains, whatever form the file has it in.
  CHECK(std::get<bool>(tape->calls[1].args[5].value));
  TrainingSetup inference = with_batch(4);
  inference.mode = Mode::inference;
  const auto other = b.tape(inference);
  REQUIRE(other.ok());
  CHECK_FALSE(std::get<bool>(other->calls[1].args[5].value));
}

TEST_CASE("batch norms that an export in evaluation mode folded away are counted again") {
  Builder b;
  b.input("x", {-1, 3, 8, 8}).weight("onnx::Conv_12", {4, 3, 1, 1}).weight("onnx::Conv_13", {4});
  b.node("Conv", {"x", "onnx::Conv_12", "onnx::Conv_13"}, {"y"}, "/block/conv/Conv");
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::conv2d", "aten::batch_norm"});
  CHECK(value_of(*tape, "block.conv.weight").kind == ValueKind::parameter);
  CHECK(tape->parameters.size() == 3);
  CHECK(std::any_of(tape->notes.begin(), tape->notes.end(),
                    [](const Note& n) { return n.text.find("folded") != std::string::npos; }));
}

TEST_CASE("a short-time Fourier transform is PyTorch's, whose numbers are complex") {
  // SpectralOps.cpp, stft: [batch, frequencies, windows] of complex numbers; ONNX STFT: [batch, windows, frequencies,
  // 2].
  Builder b;
  b.input("x", {-1, 4096, 1}).integers("step", {64}, true).integers("length", {256}, true).weight("window", {256});
  b.node("STFT", {"x", "step", "window", "length"}, {"y"});
  b.node("Relu", {"y"}, {"z"});
  b.output("z");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) ==
        Ops{"aten::squeeze.dim", "aten::stft", "aten::view_as_real", "aten::transpose.int", "aten::relu"});
  CHECK(tape->calls[3].known_shapes.at(0).second == std::vector<std::int64_t>{2, 61, 129, 2});
  CHECK(std::get<std::int64_t>(tape->calls[1].args[1].value) == 256);
  CHECK(std::get<std::int64_t>(tape->calls[1].args[2].value) == 64);
}

TEST_CASE("an op without a row stays, by name") {
  Builder b;
  b.input("x", {-1, 4}).weight("w", {4, 4});
  b.node("MatMul", {"x", "w"}, {"m"});
  auto& odd = b.node("Wobble", {"m"}, {"y"});
  odd.set_domain("acme");
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  REQUIRE(tape->calls.size() == 2);
  CHECK(tape->calls[1].op == "acme::Wobble");
  CHECK(tape->calls[1].unknown);
}

TEST_CASE("numbers and constants are no parameters") {
  Builder b;
  b.input("x", {-1, 4}).real("half", 0.5f).weight("scale", {4}).integers("index", {0, 2});
  b.node("Mul", {"x", "half"}, {"a"});
  b.node("Mul", {"a", "scale"}, {"c"});
  Builder::attribute(b.node("Gather", {"c", "index"}, {"y"}), "axis", std::int64_t{1});
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::mul.Tensor", "aten::mul.Tensor", "aten::index_select"});
  CHECK(std::get<double>(tape->calls[0].args[1].value) == 0.5);
  REQUIRE(tape->parameters.size() == 1);
  CHECK(value_of(*tape, "scale").kind == ValueKind::parameter);
}

TEST_CASE("a tied parameter is one") {
  Builder b;
  b.input("ids", {-1, 6}, ::onnx::TensorProto::INT64).weight("wte.weight", {100, 16});
  b.node("Gather", {"wte.weight", "ids"}, {"e"}, "/wte/Gather");
  Builder::attribute(b.node("Transpose", {"wte.weight"}, {"t"}, "/lm_head/Transpose"), "perm", {1, 0});
  b.node("MatMul", {"e", "t"}, {"y"}, "/lm_head/MatMul");
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::embedding", "aten::linear"});
  CHECK(tape->parameters.size() == 1);
}

TEST_CASE("weights that a tool transposed and renamed get their module's name and shape back") {
  Builder b;
  b.input("x", {-1, 6, 8}).weight("encoder.fc.bias", {32}).weight("onnx::MatMul_7", {8, 32});
  b.node("MatMul", {"x", "onnx::MatMul_7"}, {"m"}, "/encoder/fc/MatMul");
  b.node("Add", {"encoder.fc.bias", "m"}, {"y"}, "/encoder/fc/Add");
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::linear"});
  CHECK(value_of(*tape, "encoder.fc.weight").sizes == std::vector<std::int64_t>{32, 8});
  // Registered before the bias, as nn.Linear does.
  CHECK(tape->values[static_cast<std::size_t>(tape->parameters.at(0).index)].name == "encoder.fc.weight");
}

TEST_CASE("branches and loops") {
  Builder b;
  b.input("x", {-1, 4}).integers("three", {3}, true).integers("zero", {0}, true).integers("batch_axis", {0});
  SUBCASE("a known condition takes its branch") {
    b.node("Shape", {"x"}, {"shape"});
    b.node("Gather", {"shape", "zero"}, {"n"});
    b.node("Equal", {"n", "three"}, {"is_three"});
    auto& branch = b.node("If", {"is_three"}, {"y"});
    auto& yes = Builder::subgraph(branch, "then_branch");
    Builder::fill(*yes.add_node(), "Relu", {"x"}, {"a"});
    yes.add_output()->set_name("a");
    auto& no = Builder::subgraph(branch, "else_branch");
    Builder::fill(*no.add_node(), "Tanh", {"x"}, {"a"});
    no.add_output()->set_name("a");
    b.output("y");
    const auto three = b.tape(with_batch(3)), four = b.tape(with_batch(4));
    REQUIRE(three.ok());
    REQUIRE(four.ok());
    CHECK(ops_of(*three) == Ops{"aten::relu"});
    CHECK(ops_of(*four) == Ops{"aten::tanh"});
  }
  SUBCASE("a loop runs as often as its count says") {
    auto& loop = b.node("Loop", {"three", "", "x"}, {"last", "all"}, "loop");
    auto& body = Builder::subgraph(loop, "body");
    for (const char* name : {"turn", "go", "h"}) body.add_input()->set_name(name);
    Builder::fill(*body.add_node(), "Sigmoid", {"h"}, {"next"});
    Builder::fill(*body.add_node(), "Identity", {"go"}, {"still"});
    for (const char* name : {"still", "next", "next"}) body.add_output()->set_name(name);
    b.output("all");
    const auto tape = b.tape(with_batch(2));
    REQUIRE(tape.ok());
    const Ops ops = ops_of(*tape);
    CHECK(std::count(ops.begin(), ops.end(), "aten::sigmoid") == 3);
    CHECK(ops.back() == "aten::cat");
  }
}

TEST_CASE("old opsets keep axes, pads and ratios in attributes") {
  Builder b(9);
  b.input("x", {-1, 4, 1, 6});
  Builder::attribute(b.node("Squeeze", {"x"}, {"s"}), "axes", std::initializer_list<std::int64_t>{2});
  Builder::attribute(b.node("Dropout", {"s"}, {"d"}), "ratio", 0.25f);
  auto& slice = b.node("Slice", {"d"}, {"c"});
  Builder::attribute(slice, "starts", std::initializer_list<std::int64_t>{1});
  Builder::attribute(slice, "ends", std::initializer_list<std::int64_t>{3});
  Builder::attribute(slice, "axes", std::initializer_list<std::int64_t>{1});
  auto& clip = b.node("Clip", {"c"}, {"y"});
  Builder::attribute(clip, "min", 0.0f);
  Builder::attribute(clip, "max", 6.0f);
  b.output("y");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::squeeze.dim", "aten::dropout", "aten::slice.Tensor", "aten::hardtanh"});
  CHECK(std::get<double>(tape->calls[1].args[1].value) == 0.25);
}
