// Frames of a trace beside the modules of a node, and branches that libraries take only while they are exported.
#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/frontends/onnx/call_frames.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/restore/passes.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;
using Texts = std::vector<std::string>;

TEST_CASE("a frame of a base class's forward is left out, one of a forward without its module is a frame") {
  const auto base = onnx_format::call_frames(
      {"", "norm"}, {"Model", "Norm"},
      {"m.py:1 x = self.norm(x)", "m.py:2 x = nn.LayerNorm.forward(self, x)", "torch/norm.py:3 return F.layer_norm("});
  CHECK(base.paths == Texts{"", "norm"});
  CHECK(base.lines == Texts{"m.py:1 x = self.norm(x)", "m.py:2 x = nn.LayerNorm.forward(self, x)"});

  const auto alone = onnx_format::call_frames(
      {"", "layers.0.attention"}, {"Model", "Attention"},
      {"m.py:1 y = layer.forward(x, mask)", "m.py:2 a = self.attention(x)", "m.py:3 return x + x"});
  CHECK(alone.paths == Texts{"", "layers.0", "layers.0.attention"});
  CHECK(alone.lines.size() == 3);
  CHECK(onnx_format::without_module(alone.classes[1]));
  CHECK_FALSE(onnx_format::without_module(alone.classes[2]));

  // The op itself stands in that frame, whose module nothing names.
  const auto direct = onnx_format::call_frames({""}, {"Model"}, {"m.py:1 y = layer.forward(x)", "m.py:2 return x + x"});
  CHECK(direct.paths == Texts{"", ""});

  // timm 1.0.31, models/hrnet.py: a method that calls nn.Sequential.forward applies no autograd function.
  const auto helped = onnx_format::call_frames(
      {"", "down.0"}, {"Model", "torch.nn.modules.conv.Conv2d"},
      {"m.py:1 y = self.features(x)", "torch/nn/modules/container.py:253 input = module(input)",
       "torch/nn/modules/batchnorm.py:194 return F.batch_norm("});
  CHECK(helped.application.empty());

  // torch.export 2.11 of transformers' BigBird, whose forward pass makes the module `self` of its attention anew.
  const auto made = onnx_format::call_frames({"", "layer.0.attention", "layer.0.attention.self.query"},
                                             {"Model", "Attention", "Linear"},
                                             {"m.py:1 y = layer.attention(x)", "m.py:2 y, w = self.self(",
                                              "m.py:3 q = self.query(x).view(shape)", "l.py:4 f"});
  CHECK(made.paths == Texts{"", "layer.0.attention", "layer.0.attention.self", "layer.0.attention.self.query"});
  CHECK(made.lines.size() == 4);
  const auto own_op =
      onnx_format::call_frames({"", "attention"}, {"Model", "Attention"},
                               {"m.py:1 y = self.attention(x)", "m.py:2 y = self.self(x)", "m.py:3 x * x"});
  CHECK(own_op.paths == Texts{"", "attention", "attention.self"});
  // Two modules are called there: which of them it is remains open.
  const auto either = onnx_format::call_frames({""}, {"Model"}, {"m.py:1 y = self.a(self.b(x))", "m.py:2 x * x"});
  REQUIRE(either.paths.size() == 2);
  CHECK(onnx_format::without_module(either.classes[1]));

  // A frame that no module explains may be an autograd.Function's.
  const auto unclear = onnx_format::call_frames({""}, {"Model"}, {"m.py:1 y = f(x)", "m.py:2 return x + x"});
  REQUIRE(unclear.paths.size() == 2);
  CHECK(onnx_format::without_module(unclear.classes[1]));
  CHECK(unclear.application == "m.py:1 y = f(x)");
  CHECK(alone.application.empty());
}

TEST_CASE("files tell which frame is no module's") {
  // mambapy 1.2's selective scan: `ssm` is a method that applies PScan, an autograd.Function.
  const auto scan = onnx_format::call_frames(
      {"", "layers.0", "layers.0.mixer"},
      {"mambapy.mamba.Mamba", "mambapy.mamba.ResidualBlock", "mambapy.mamba.MambaBlock"},
      {"mambapy/mamba.py:94 x = layer(x)", "mambapy/mamba.py:120 output = self.mixer(self.norm(x)) + x",
       "mambapy/mamba.py:222 y = self.ssm(x, z)", "mambapy/pscan.py:181 PScan.pscan(A, X)"});
  CHECK(scan.application == "mambapy/mamba.py:222 y = self.ssm(x, z)");
  // g-mlp-pytorch: `nn.Sequential(*layers)(x)` is a module that the forward pass makes, and no function.
  const auto made = onnx_format::call_frames(
      {"", "layers.0", "layers.0.fn"}, {"g_mlp.gMLP", "g_mlp.Residual", "g_mlp.PreNorm"},
      {"g_mlp.py:289 x = nn.Sequential(*layers)(x)", "torch/nn/modules/container.py:253 input = module(input)",
       "g_mlp.py:45 return self.fn(x) + x", "g_mlp.py:73 x = self.norm(x)"});
  CHECK(made.paths == Texts{"", "layers", "layers.0", "layers.0.fn"});
  CHECK(made.application.empty());
  // torch 2.11's _NoopSaveInputs, which checkpoint(block, x, use_reentrant=False) applies first.
  const auto saved = onnx_format::call_frames(
      {""}, {"m.Model"}, {"m.py:12 x = checkpoint(b, x)", "torch/utils/checkpoint.py:798 return torch.empty((0,))"});
  CHECK(saved.application.empty());
  // Frames of one file may be either.
  const auto same = onnx_format::call_frames({"", "a"}, {"m.Model", "m.Block"},
                                             {"m.py:1 y = self.a(x)", "m.py:2 y = scan(x)", "m.py:3 return x * x"});
  CHECK_FALSE(same.application.empty());
}

// Swin's table of a window of 7 has (2·7-1)² rows for its 7⁴ pairs (torchvision 0.26, swin_transformer.py); BEiT's has
// three more for a token before the window of 14 (transformers 5.23, modeling_beit.py).
TEST_CASE("what an optimizer joined or looked up tells the sizes of the parameters that it came of") {
  using onnx_format::joined_sizes;
  CHECK(onnx_format::rows_of_pairs(2401) == 169);
  CHECK(onnx_format::rows_of_pairs(197 * 197) == 732);
  CHECK(onnx_format::rows_of_pairs(6 * 6) == 11);
  CHECK(joined_sizes({768}, 3) == std::vector<std::vector<std::int64_t>>{{256}, {256}, {256}});
  CHECK(joined_sizes({1, 5, 256}, 2) == std::vector<std::vector<std::int64_t>>{{1, 1, 256}, {1, 4, 256}});
  CHECK(onnx_format::folded_op("unsqueeze_3") == std::string("aten::view"));
  CHECK(onnx_format::folded_op("index_3") == nullptr);
  // -self.A_log.exp() of Mamba's layers: one step before the last, whatever else is listed.
  const auto step = onnx_format::step_before("neg", {"exp", "layers.0.A_log", "val_7"});
  REQUIRE(step);
  CHECK(step->op == std::string("aten::exp"));
  CHECK_FALSE(onnx_format::step_before("neg", {"exp", "mul_3", "layers.0.A_log"}));  // in which order is not told
  CHECK_FALSE(onnx_format::step_before("softplus", {"beta", "softplus_2", "scale"}));
}

namespace {

constexpr const char* weight_norm_parts = R"tape(
parameter %v float32 [8, 4, 3]
parameter %g float32 [8, 1, 1]
scope 0 "" M
%norm = aten::linalg_vector_norm(%v, 2, [1, 2], True) in 0 at "p.py:1 return torch._weight_norm(weight_v, weight_g, self.dim)"
%div = aten::div.Tensor(%g, %norm) in 0 at "p.py:1 return torch._weight_norm(weight_v, weight_g, self.dim)"
%w = aten::mul.Tensor(%v, %div) in 0 at "p.py:1 return torch._weight_norm(weight_v, weight_g, self.dim)"
)tape";

}  // namespace

// torch.nn.utils.parametrizations.weight_norm in PyTorch 2.11: one call in eager code.
TEST_CASE("a weight norm that was exported as its parts is one op again") {
  const std::string text = std::string(weight_norm_parts) + "return %w\n";
  Tape tape = from_text(text);
  recover_weight_norms(tape);
  check(tape);
  REQUIRE(tape.calls.size() == 1);
  CHECK(tape.calls[0].op == "aten::_weight_norm");
  CHECK(std::get<std::int64_t>(tape.calls[0].args[2].value) == 0);

  std::string own = text;
  for (auto at = own.find("torch._weight_norm"); at != own.npos; at = own.find("torch._weight_norm"))
    own.replace(at, 18, "normalized");
  Tape other = from_text(own);
  recover_weight_norms(other);
  CHECK(other.calls.size() == 3);
}

// An exporter that shares equal calls leaves one norm and one quotient of a module that runs twice.
TEST_CASE("a weight norm whose parts two calls share is two ops, unless something else reads the parts") {
  const std::string text = std::string(weight_norm_parts) +
                           "%again = aten::mul.Tensor(%v, %div) in 0 at \"p.py:1 return torch._weight_norm(weight_v, "
                           "weight_g, self.dim)\"\n";
  Tape tape = from_text(text + "return %w\nreturn %again\n");
  recover_weight_norms(tape);
  check(tape);
  REQUIRE(tape.calls.size() == 2);
  for (const Call& c : tape.calls) CHECK(c.op == "aten::_weight_norm");

  Tape other = from_text(text + "%half = aten::mul.Tensor(%div, 0.5) in 0\nreturn %w\nreturn %again\nreturn %half\n");
  recover_weight_norms(other);
  CHECK(other.calls.size() == 5);
}

// torch/nn/utils/weight_norm.py: a hook that runs before the module's forward(), so the line is its caller's.
TEST_CASE("the weight that a hook of weight_norm makes is one op, and lives until the next forward pass") {
  const auto tape_of = [](std::string_view line) {
    const std::string at = " in 1 at \"m.py:5 " + std::string(line) + "\"\n";
    Tape tape = from_text(
        "input %x float32 [1, 4, 9]\nparameter %conv.weight_g float32 [8, 1, 1]\n"
        "parameter %conv.weight_v float32 [8, 4, 3]\nscope 0 \"\" M\nscope 1 conv torch.nn.modules.conv.Conv1d in 0\n"
        "%norm = aten::linalg_vector_norm(%conv.weight_v, 2, [1, 2], True)" +
        at + "%div = aten::div.Tensor(%conv.weight_g, %norm)" + at + "%w = aten::mul.Tensor(%conv.weight_v, %div)" +
        at +
        "%y = aten::conv1d(%x, %w) in 1 at \"conv.py:9 return F.conv1d(x, self.weight)\"\n"
        "%out = aten::exp(%y) in 0 at \"m.py:6 return y.exp()\"\nreturn %out\n");
    recover_weight_norms(tape);
    keep_hooked_weights(tape);
    bind_names(tape);
    mark_last_uses(tape);
    check(tape);
    return tape;
  };
  const auto goes = [](const Tape& tape) {
    return std::ranges::any_of(tape.calls, [&](const Call& c) {
      return std::ranges::any_of(
          c.last_uses, [&](ValueId id) { return tape.values[static_cast<std::size_t>(id.index)].name == "w"; });
    });
  };
  const Tape hook = tape_of("y = self.conv(x)");
  REQUIRE(hook.calls.size() == 3);
  CHECK(hook.calls[0].op == "aten::_weight_norm");
  CHECK_FALSE(goes(hook));
  const Tape written_out = tape_of("w = self.weight_v * (self.weight_g / self.weight_v.norm())");
  CHECK(written_out.calls.size() == 5);
  CHECK(goes(written_out));
}

namespace {

std::string substitution(const char* line) {
  const std::string at = std::string(" in 0 at \"") + line + "\"\n";
  return R"(input %a float32 [3, 4, 4]
input %b float32 [3, 4, 8]
scope 0 "" M
)" + ("%tril = aten::tril(%a, -1)" + at) +
         ("%neg = aten::neg(%tril)" + at) + ("%row = aten::select.int(%neg, 1, 1)" + at) +
         ("%new = aten::clone(%row)" + at) + ("%into = aten::select.int(%neg, 1, 1)" + at) +
         ("%written = aten::copy_(%into, %new)" + at) + ("%eye = aten::eye(4, dtype=float32)" + at) +
         ("%inverse = aten::add.Tensor(%neg, %eye)" + at) + ("%y = aten::matmul(%inverse, %b)" + at) + "return %y\n";
}

bool solves(const Tape& tape) {
  return std::any_of(tape.calls.begin(), tape.calls.end(),
                     [](const Call& c) { return c.op == "aten::linalg_solve_triangular"; });
}

}  // namespace

TEST_CASE("an inverse that is built row by row for an exporter becomes the system that eager code solves") {
  Tape tape = from_text(substitution("transformers/models/m.py:1 y, s = torch_chunk_gated_delta_rule("));
  recover_triangular_solves(tape);
  check(tape);
  REQUIRE(tape.calls.size() == 1);
  CHECK(solves(tape));
  CHECK(tape.recovered.back().about == About::branch);

  // An ONNX file has torch.eye() folded.
  std::string folded = substitution("transformers/models/m.py:1 y, s = torch_chunk_gated_delta_rule(");
  folded.replace(folded.find("aten::eye(4, "), 13, "aten::empty.memory_format([4, 4], ");
  Tape constant = from_text(folded);
  recover_triangular_solves(constant);
  CHECK(solves(constant));

  // Layers share it where sizes are fixed.
  const std::string line = " in 0 at \"transformers/models/m.py:1 y, s = torch_chunk_gated_delta_rule(\"\n";
  std::string shared = folded.substr(0, folded.find("return"));
  for (const char* call : {"%tril2 = aten::tril(%y, -1)", "%neg2 = aten::neg(%tril2)",
                           "%inverse2 = aten::add.Tensor(%neg2, %eye)", "%z = aten::matmul(%inverse2, %b)"})
    shared += call + line;
  Tape both = from_text(shared + "return %z\n");
  recover_triangular_solves(both);
  CHECK(both.calls.size() == 2);

  Tape own = from_text(substitution("mine/m.py:1 y = solve(a, b)"));
  recover_triangular_solves(own);
  CHECK_FALSE(solves(own));
  CHECK(own.calls.size() == 9);
}

// transformers 5.23.0, models/qwen3_5/modeling_qwen3_5.py: x.transpose(1, 2).to(torch.float32,
// memory_format=torch.contiguous_format) of its arguments, and the result back to the query's dtype.
TEST_CASE("the gated delta rule works in fp32, of which an export in fp32 shows nothing") {
  const std::string line = " in 0 at \"transformers/models/m.py:1 y, s = torch_chunk_gated_delta_rule(\"\n";
  std::string text = "input %q float32 [3, 4, 2, 4]\nscope 0 \"\" M\n";
  for (const char* call : {"%turned = aten::transpose.int(%q, 1, 2)", "%scaled = aten::mul.Tensor(%turned, 0.5)",
                           "%tril = aten::tril(%scaled, -1)", "%neg = aten::neg(%tril)",
                           "%eye = aten::eye(4, dtype=float32)", "%inverse = aten::add.Tensor(%neg, %eye)",
                           "%solved = aten::matmul(%inverse, %scaled)", "%y = aten::transpose.int(%solved, 1, 2)"})
    text += call + line;
  Tape tape = from_text(text + "%out = aten::relu(%y) in 0\nreturn %out\n");
  Tape told = tape;
  recover_triangular_solves(tape);
  check(tape);
  std::vector<std::string> ops;
  for (const Call& c : tape.calls) ops.push_back(c.op);
  CHECK(ops == Texts{"aten::transpose.int", "aten::to.dtype", "aten::mul.Tensor", "aten::linalg_solve_triangular",
                     "aten::transpose.int", "aten::to.other", "aten::relu"});
  CHECK(std::get<ValueId>(tape.calls[2].args[0].value) == tape.calls[1].outputs[0]);
  CHECK(std::get<ValueId>(tape.calls[5].args[1].value) == tape.inputs[0]);
  CHECK(std::get<ValueId>(tape.calls[6].args[0].value) == tape.calls[5].outputs[0]);

  told.exported.keeps_casts = true;  // a .pt2 archive shows them
  recover_triangular_solves(told);
  CHECK(std::ranges::none_of(told.calls, [](const Call& c) { return c.op.starts_with("aten::to."); }));
}

namespace {

/// One step as torch.onnx.export writes it, with `state` in the place of the cell's own state.
std::string lstm_cell(const std::string& state, const std::string& line) {
  const std::string at = " in 1 at \"torch/nn/modules/rnn.py:1 ret = " + line + "\"\n";
  return R"(input %x float32 [2, 3]
input %h float32 [2, 4]
input %c float32 [2, 4]
parameter %cell.weight_ih float32 [16, 3]
parameter %cell.weight_hh float32 [16, 4]
scope 0 "" M
scope 1 cell torch.nn.modules.rnn.LSTMCell in 0
)" + ("%a = aten::linear(%h, %cell.weight_hh)" + at) +
         ("%b = aten::linear(%x, %cell.weight_ih)" + at) + ("%sum = aten::add.Tensor(%a, %b)" + at) +
         "%i, %f, %g, %o = aten::split.Tensor(%sum, 4, 1) in 1\n" + ("%si = aten::sigmoid(%i)" + at) +
         ("%sf = aten::sigmoid(%f)" + at) + ("%tg = aten::tanh(%g)" + at) + ("%so = aten::sigmoid(%o)" + at) +
         ("%kept = aten::mul.Tensor(%sf, %" + state + ")" + at) + ("%new = aten::mul.Tensor(%si, %tg)" + at) +
         ("%next_c = aten::add.Tensor(%kept, %new)" + at) + ("%t = aten::tanh(%next_c)" + at) +
         ("%next_h = aten::mul.Tensor(%so, %t)" + at);
}

}  // namespace

TEST_CASE("what an exporter makes of an LSTM cell is the cell again") {
  for (const char* state : {"c", "h"}) {  // zeros of one size are one value in an ONNX file
    Tape tape = from_text(lstm_cell(state, "_VF.lstm_cell(") + "return %next_h, %next_c\n");
    recover_recurrent_cells(tape);
    check(tape);
    REQUIRE(tape.calls.size() == 1);
    const Call& cell = tape.calls.front();
    CHECK(cell.op == "aten::lstm_cell");
    REQUIRE(cell.outputs.size() == 2);
    CHECK(tape.values[static_cast<std::size_t>(cell.outputs[0].index)].name == "next_h");
    CHECK(tape.values[static_cast<std::size_t>(cell.outputs[1].index)].name == "next_c");
    CHECK(std::get<Arg::List>(cell.args.at(1).value).size() == 2);
  }
  // The next turn of a loop follows without a call between them.
  std::string turns = lstm_cell("c", "_VF.lstm_cell("), second = turns.substr(turns.find("%a = "));
  for (const auto& [from, to] : {std::pair("%next_h = ", "%last_h = "),
                                 {"%next_c = ", "%last_c = "},
                                 {"(%h,", "(%next_h,"},
                                 {"%c)", "%next_c)"},
                                 {"tanh(%next_c)", "tanh(%last_c)"}})
    second.replace(second.find(from), std::string_view(from).size(), to);
  for (const std::string name : {"a", "b", "sum", "i", "f", "g", "o", "si", "sf", "tg", "so", "kept", "new", "t"})
    for (const char* end : {" =", ",", ")", " "})
      for (auto at = second.find("%" + name + end); at != second.npos; at = second.find("%" + name + end, at + 1))
        second.insert(at + 1, "later_");
  Tape loop = from_text(turns + second + "return %last_h\nreturn %last_c\n");
  recover_recurrent_cells(loop);
  check(loop);
  REQUIRE(loop.calls.size() == 2);
  for (const Call& c : loop.calls) CHECK(c.op == "aten::lstm_cell");
  // Somebody reads a gate, or the line is the model's own: it stays as it is.
  Tape read = from_text(lstm_cell("c", "_VF.lstm_cell(") + "return %next_h, %si\n");
  recover_recurrent_cells(read);
  CHECK(read.calls.size() == 13);
  Tape own = from_text(lstm_cell("c", "my_cell(") + "return %next_h, %next_c\n");
  recover_recurrent_cells(own);
  CHECK(own.calls.size() == 13);
}

namespace {

std::string rms_norm(const std::string& line, const std::string& also = "") {
  const std::string at = " in 1 at \"" + line + "\"\n";
  return R"(input %x float32 [2, 8]
parameter %n.weight float32 [8]
scope 0 "" M
scope 1 n torch.nn.modules.normalization.RMSNorm in 0
)" + ("%p = aten::pow.Tensor_Scalar(%x, 2)" + at) +
         ("%m = aten::mean.dim(%p, [1], True)" + at) + ("%a = aten::add.Scalar(%m, 1e-06)" + at) +
         ("%r = aten::rsqrt(%a)" + at) + ("%s = aten::mul.Tensor(%x, %r)" + at) +
         ("%y = aten::mul.Tensor(%s, %n.weight)" + at) + "return %y" + also + "\n";
}

}  // namespace

TEST_CASE("what an exporter makes of torch.rms_norm is one call again; a norm by hand stays") {
  Tape tape =
      from_text(rms_norm("torch/nn/modules/normalization.py:419 return F.rms_norm(x, self.shape, self.weight)"));
  recover_rms_norms(tape);
  check(tape);
  REQUIRE(tape.calls.size() == 1);
  CHECK(tape.calls[0].op == "aten::rms_norm");
  CHECK(std::get<Arg::List>(tape.calls[0].args.at(1).value).size() == 1);
  CHECK(std::holds_alternative<ValueId>(tape.calls[0].args.at(2).value));

  Tape by_hand =
      from_text(rms_norm("m.py:3 return self.weight * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)"));
  recover_rms_norms(by_hand);
  CHECK(by_hand.calls.size() == 6);
  Tape read = from_text(rms_norm("torch/nn/modules/normalization.py:419 return F.rms_norm(x, self.shape)", ", %r"));
  recover_rms_norms(read);
  CHECK(read.calls.size() == 6);
}

TEST_CASE("a mask that the exporter casts for a product is multiplied as it is; a cast of the program stays") {
  const std::string head = "input %x float32 [2, 8]\nscope 0 \"\" M\n%mask = aten::gt.Scalar(%x, 0) in 0\n";
  const auto program = [&](const std::string& name, const std::string& reader) {
    return from_text(head + "%" + name + " = aten::to.dtype(%mask, float32) in 0\n%y = " + reader + "(%x, %" + name +
                     ") in 0\nreturn %y\n");
  };
  Tape tape = program("convert_element_type_default_1", "aten::mul.Tensor");
  recover_type_promotion(tape);
  check(tape);
  REQUIRE(tape.calls.size() == 2);
  CHECK(std::get<ValueId>(tape.calls[1].args.at(1).value) == tape.calls[0].outputs[0]);
  // matmul takes one type, and y.float() is a call of the program.
  for (const auto& [name, reader] :
       {std::pair{"convert_element_type_default", "aten::matmul"}, {"_to_copy", "aten::mul.Tensor"}}) {
    Tape kept = program(name, reader);
    recover_type_promotion(kept);
    CHECK(kept.calls.size() == 3);
  }
}

TEST_CASE("sizes that attention works out are there for other modules in inference") {
  // nn.MultiheadAttention(8, 2, batch_first=True) of x, x, x; its size is read behind it.
  Tape tape = from_text(R"tape(
input %x float32 [2, 4, 8]
parameter %a.in_proj_weight float32 [24, 8]
parameter %a.in_proj_bias float32 [24]
parameter %a.out_proj.weight float32 [8, 8]
parameter %a.out_proj.bias float32 [8]
scope 0 "" M
scope 1 a torch.nn.modules.activation.MultiheadAttention in 0
%n = aten::sym_size.int(%x, 0) in 0
%t = aten::transpose.int(%x, 1, 0) in 1
%p = aten::linear(%t, %a.in_proj_weight, %a.in_proj_bias) in 1
%m = _operator.mul(%n, 2) in 1
%q = aten::reshape(%p, [2, 2, 4, 4]) in 1
%s = aten::scaled_dot_product_attention(%q, %q, %q) in 1
%o = aten::linear(%s, %a.out_proj.weight, %a.out_proj.bias) in 1
%r = aten::transpose.int(%o, 1, 0) in 1
%y = aten::reshape(%r, [%m, -1]) in 0
return %y
)tape");
  enter_inference(tape, Precision::fp32);
  check(tape);  // "m" is still made before it is read
  CHECK(std::any_of(tape.calls.begin(), tape.calls.end(),
                    [](const Call& c) { return c.op == "aten::_native_multi_head_attention"; }));
}

// torch/nn/modules/activation.py, forward and merge_masks: one mask of either kind leaves the fast path open.
TEST_CASE("attention under a mask takes its fast path in inference, also where modules share the mask's views") {
  const auto attention = [](const std::string& n, const std::string& chain, const std::string& mask,
                            const std::string& causal = "False") {
    return "%t" + n + " = aten::transpose.int(%x, 1, 0) in " + n + "\n%p" + n + " = aten::linear(%t" + n +
           ", %a.in_proj_weight, %a.in_proj_bias) in " + n + "\n%q" + n + " = aten::reshape(%p" + n +
           ", [2, 2, 4, 4]) in " + n + "\n" + chain + "%s" + n + " = aten::scaled_dot_product_attention(%q" + n +
           ", %q" + n + ", %q" + n + ", " + mask + ", 0.0, " + causal + ") in " + n + "\n%o" + n +
           " = aten::linear(%s" + n + ", %a.out_proj.weight, %a.out_proj.bias) in " + n + "\n%r" + n +
           " = aten::transpose.int(%o" + n + ", 1, 0) in " + n + "\n";
  };
  const auto fast = [](const std::string& calls, const std::string& owner = "M") {
    std::vector<Call> found;
    Tape tape = from_text(
        "input %x float32 [2, 4, 8]\ninput %keys bool [2, 4]\ninput %pairs bool [4, 4]\n"
        "parameter %a.in_proj_weight float32 [24, 8]\nparameter %a.in_proj_bias float32 [24]\n"
        "parameter %a.out_proj.weight float32 [8, 8]\nparameter %a.out_proj.bias float32 [8]\n"
        "scope 0 \"\" " +
        owner +
        "\nscope 1 a torch.nn.modules.activation.MultiheadAttention in 0\n"
        "scope 2 b torch.nn.modules.activation.MultiheadAttention in 0\n" +
        calls);
    enter_inference(tape, Precision::fp32);
    check(tape);
    for (const Call& c : tape.calls)
      if (c.op == "aten::_native_multi_head_attention") found.push_back(c);
    return found;
  };
  const auto type = [](const Call& c) { return std::get<std::int64_t>(c.args.at(9).value); };
  const std::string heads = "%v = aten::reshape(%keys, [2, 1, 1, 4]) in 1\n%e = aten::expand(%v, [2, 2, 1, 4]) in 1\n";
  const std::string both = "%y = aten::add.Tensor(%r1, %r2) in 0\nreturn %y\n", one = "return %r1\n";
  const auto shared = fast(attention("1", heads, "%e") + attention("2", "", "%e") + both);
  REQUIRE(shared.size() == 2);
  for (const Call& c : shared) CHECK(type(c) == 1);
  const auto pairs = fast(attention("1", "%u = aten::unsqueeze(%pairs, 0) in 1\n", "%u") + one);
  REQUIRE(pairs.size() == 1);
  CHECK(type(pairs[0]) == 0);
  const auto causal = fast(attention("1", "", "None", "True") + one);
  REQUIRE(causal.size() == 1);
  CHECK(causal[0].args.at(8).is_none());
  CHECK(type(causal[0]) == 0);
  CHECK(fast(attention("1", "", "None") + one).at(0).args.size() == 8);
  // Two masks that were added, and nn.TransformerEncoder, which makes a nested tensor of what is no padding.
  CHECK(fast(attention("1", "%w = aten::add.Tensor(%pairs, %keys) in 1\n", "%w") + one).empty());
  CHECK(fast(attention("1", heads, "%e") + one, "torch.nn.modules.transformer.TransformerEncoder").empty());
}
