// Conversions that an export in fp32 drops, put back by lines and by names of results.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/restore/names.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"
#include "onnx_builder.h"

using namespace memplan;
using test::ops_of;

// transformers 5.23.0, models/beam/modeling_beam.py:637: logits = logits.float() / self.config.final_logit_softcapping
TEST_CASE("a line converts to fp32 what a name holds") {
  const auto ops = [](const char* line) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [2, 8]
scope 0 "" M
%first = aten::relu(%in) in 0 at "m.py:1 logits = relu(x)"
%second = aten::div.Tensor(%first, 30.0) in 0 at "m.py:2 )tape") +
                          line + "\"\nreturn %second\n");
    bind_names(tape);
    widen_named(tape);
    check(tape);
    return ops_of(tape);
  };
  using Ops = std::vector<std::string>;
  CHECK(ops("logits = logits.float() / 30.0") == Ops{"aten::relu", "aten::to.dtype", "aten::div.Tensor"});
  CHECK(ops("logits = logits.to(torch.float32) / 30.0") == Ops{"aten::relu", "aten::to.dtype", "aten::div.Tensor"});
  CHECK(ops("logits = logits / 30.0") == Ops{"aten::relu", "aten::div.Tensor"});
  CHECK(ops("logits = f(logits, logits.float())") == Ops{"aten::relu", "aten::div.Tensor"});  // which of them?
  // The one tensor that the line reads has that name there: an argument, or "scores = logits".
  CHECK(ops("logits = scores.float() / 30.0") == Ops{"aten::relu", "aten::to.dtype", "aten::div.Tensor"});
  CHECK(ops("logits = scores.float().view(scores.shape) / 30.0") ==
        Ops{"aten::relu", "aten::to.dtype", "aten::div.Tensor"});
  CHECK(ops("logits = scores.float() / scores.max()") == Ops{"aten::relu", "aten::div.Tensor"});
}

TEST_CASE("a line converts its result, or that of the module that it calls") {
  const auto ops = [](const std::string& line) {
    Tape tape = from_text(R"tape(
input %in float32 [2, 8]
parameter %w float32 [8, 8]
binding 0 {y}
scope 0 "" M
scope 1 head torch.nn.modules.linear.Linear in 0 by 0 at "m.py:2 )tape" +
                          line +
                          R"tape("
%first = aten::relu(%in) in 0 at "m.py:1 x = relu(x)"
%second = aten::linear(%first, %w, None) in 1
%last = aten::neg(%second) in 0 at "m.py:3 return -y"
return %last
)tape");
    bind_names(tape);
    follow_asked_dtypes(tape);
    check(tape);
    return ops_of(tape);
  };
  using Ops = std::vector<std::string>;
  const Ops as_it_is{"aten::relu", "aten::linear", "aten::neg"};
  CHECK(ops("y = self.head(x).float()") == Ops{"aten::relu", "aten::linear", "aten::to.dtype", "aten::neg"});
  CHECK(ops("y = self.head(x).to(torch.float32)") == Ops{"aten::relu", "aten::linear", "aten::to.dtype", "aten::neg"});
  CHECK(ops("y = self.head(x).type_as(x)") == Ops{"aten::relu", "aten::linear", "aten::type_as", "aten::neg"});
  CHECK(ops("y = self.head(x)") == as_it_is);
  CHECK(ops("y = 2 * self.head(x).float()") == as_it_is);     // the product takes it, not the line
  CHECK(ops("y = self.head(x).type_as(other)") == as_it_is);  // which nobody knows
}

// The exporter's name of what `return (x.float() * self.decay).type_as(x)` gives; the line is not in the file.
TEST_CASE("a result that the exporter calls type_as was converted, and so was what it was made of") {
  const auto ops = [](const char* name, const char* maker) {
    const std::string n = name;
    Tape tape = from_text(R"tape(
input %in float32 [2, 8]
parameter %w float32 [8, 8]
buffer %decay float32 [8]
scope 0 "" M
%given = )tape" + std::string(maker) +
                          R"tape( in 0 at "m.py:1 q = self.q(x)"
%)tape" + n + R"tape( = aten::mul.Tensor(%given, %decay) in 0 at "m.py:2 q = self.decayed(q)"
%last = aten::neg(%)tape" +
                          n + R"tape() in 0 at "m.py:3 return -q"
return %last
)tape");
    convert_named(tape);
    check(tape);
    return ops_of(tape);
  };
  using Ops = std::vector<std::string>;
  CHECK(ops("type_as_1", "aten::linear(%in, %w, None)") ==
        Ops{"aten::linear", "aten::to.dtype", "aten::mul.Tensor", "aten::type_as", "aten::neg"});
  CHECK(ops("mul_1", "aten::linear(%in, %w, None)") == Ops{"aten::linear", "aten::mul.Tensor", "aten::neg"});
  // What autocast leaves in fp32 needs no conversion.
  CHECK(ops("type_as_1", "aten::relu(%in)") == Ops{"aten::relu", "aten::mul.Tensor", "aten::neg"});
}

TEST_CASE("a range reads norms and helpers of the model's own as if they kept the type of what they were given") {
  // `x + self.positions.to(x.dtype)` in a method, and a norm that ends with `return y.to(x.dtype)`.
  const std::string text = R"tape(
input %in float32 [2, 8]
parameter %positions float32 [2, 8]
parameter %norm.weight float32 [8]
scope 0 "" own.Model
scope 1 norm own.Norm in 0 at "m.py:3 y = self.norm(x)"
%sum = aten::add.Tensor(%in, %positions) in 0 at "m.py:2 x = self.place(x)"
%normed = aten::layer_norm(%sum, [8], %norm.weight, None, 1e-05, False) in 1 at "m.py:9 y = F.layer_norm(x.float(), s)"
%last = aten::neg(%normed) in 0 at "m.py:4 return -y"
return %last
)tape";
  using Ops = std::vector<std::string>;
  const auto ops = [](std::string tape_text) {
    Tape tape = from_text(tape_text);
    const bool open = has_open_casts(tape);
    tape.reading.open_casts = true;
    make_open_casts(tape);
    check(tape);
    CHECK(open == (ops_of(tape).size() > 3));
    return ops_of(tape);
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    return out.replace(out.find(from), from.size(), to);
  };
  CHECK(ops(text) == Ops{"aten::type_as", "aten::add.Tensor", "aten::layer_norm", "aten::type_as", "aten::neg"});
  // A line that names the parameter shows that it converts nothing; nn.LayerNorm's class is known.
  CHECK(ops(with("x = self.place(x)", "x = x + self.positions")) ==
        Ops{"aten::add.Tensor", "aten::layer_norm", "aten::type_as", "aten::neg"});
  CHECK(ops(with("norm own.Norm", "norm torch.nn.modules.normalization.LayerNorm")) ==
        Ops{"aten::type_as", "aten::add.Tensor", "aten::layer_norm", "aten::neg"});
}

// transformers 5.23.0, models/flint/modeling_flint.py:221: `with maybe_autocast(device_type=…, enabled=False):`
TEST_CASE("a range reads products of two tensors that were just widened as made with autocast off") {
  const auto products = [](const char* second) {
    Tape tape = from_text(std::string(R"tape(
input %q float32 [2, 8, 4]
input %k float32 [2, 8, 4]
scope 0 "" own.Model
%wide = aten::to.dtype(%q, float32) in 0 at "m.py:2 w = attend(q, k)"
%other = )tape") + second +
                          R"tape( in 0 at "m.py:2 w = attend(q, k)"
%turned = aten::transpose.int(%other, 1, 2) in 0 at "m.py:2 w = attend(q, k)"
%w = aten::matmul(%wide, %turned) in 0 at "m.py:2 w = attend(q, k)"
return %w
)tape");
    tape.exported.keeps_casts = true;
    const bool open = has_open_casts(tape);
    tape.reading.open_casts = true;
    make_open_casts(tape);
    CHECK(open == tape.calls.back().no_autocast);
    return open;
  };
  CHECK(products("aten::to.dtype(%k, float32)"));
  CHECK_FALSE(products("aten::to.dtype(%k, bfloat16)"));
  CHECK_FALSE(products("aten::exp(%k)"));
}

// transformers 5.23.0, models/beam/modeling_beam.py:333
TEST_CASE("a module gets what the line that calls it converts") {
  Tape tape = from_text(R"tape(
input %x float32 [2, 8]
scope 0 "" own.Model
scope 1 act own.Act in 0 at "m.py:2 y = self.act(gate.float()) * x"
%gate = aten::sin(%x) in 0 at "m.py:1 gate = torch.sin(x)"
%acted = aten::exp(%gate) in 1 at "m.py:9 return torch.exp(input)"
%y = aten::mul.Tensor(%acted, %x) in 0 at "m.py:2 y = self.act(gate.float()) * x"
%out = aten::neg(%gate) in 0 at "m.py:3 return -gate"
return %out
)tape");
  bind_names(tape);
  widen_named(tape);
  check(tape);
  using Ops = std::vector<std::string>;
  REQUIRE(ops_of(tape) == Ops{"aten::sin", "aten::to.dtype", "aten::exp", "aten::mul.Tensor", "aten::neg"});
  CHECK(tape.calls[1].scope == 0);
  CHECK(std::get<ValueId>(tape.calls[2].args[0].value) == tape.calls[1].outputs[0]);
  CHECK(std::get<ValueId>(tape.calls[4].args[0].value) == tape.calls[0].outputs[0]);
}

// timm 1.0.31, models/efficientvit_mit.py:385: with torch.autocast(…, enabled=False): out = self._attn(q, k, v)
TEST_CASE("a region of which an exporter keeps no lines may run with autocast off, on what was converted to fp32") {
  const std::string text = R"tape(
input %x float32 [2, 4]
scope 0 "" M
%q = aten::relu(%x) in 0 at "m.py:1 q = relu(x)"
%kv = aten::matmul(%q, %q) in 0
%out = aten::matmul(%q, %kv) in 0
%y = aten::exp(%out) in 0 at "m.py:4 return out.exp()"
return %y
)tape";
  Tape tape = from_text(text);
  REQUIRE(has_open_casts(tape));
  tape.reading.open_casts = true;
  make_open_casts(tape);
  std::vector<std::string> ops;
  for (const Call& c : tape.calls) ops.push_back(c.op + (c.no_autocast ? " off" : ""));
  CHECK(ops ==
        std::vector<std::string>{"aten::relu", "aten::to.dtype", "aten::matmul off", "aten::matmul off", "aten::exp"});
  CHECK(std::get<ValueId>(tape.calls[3].args[0].value) == tape.calls[1].outputs[0]);
  // A file without any lines says nothing by leaving one out.
  std::string silent = text;
  for (auto at = silent.find(" at \""); at != silent.npos; at = silent.find(" at \""))
    silent.erase(at, silent.find('\n', at) - at);
  CHECK_FALSE(has_open_casts(from_text(silent)));
}
