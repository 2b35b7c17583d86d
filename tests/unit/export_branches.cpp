// Frames of a trace beside the modules of a node, and branches that libraries take only while they are exported.
#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/frontends/onnx/call_frames.h"
#include "estimators/restore/passes.h"
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

  // A frame that nothing explains: both lists stay as they are.
  const auto unclear = onnx_format::call_frames({""}, {"Model"}, {"m.py:1 y = f(x)", "m.py:2 return x + x"});
  CHECK(unclear.paths.size() == 1);
  CHECK(unclear.lines.size() == 2);
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

  Tape own = from_text(substitution("mine/m.py:1 y = solve(a, b)"));
  recover_triangular_solves(own);
  CHECK_FALSE(solves(own));
  CHECK(own.calls.size() == 9);
}
