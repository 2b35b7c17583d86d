#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/restore/casts.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/restore/passes.h"
#include "estimators/restore/statement.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

/// The index of the call after which the value of that name is gone, -1 when it stays.
int gone_after(const Tape& tape, std::string_view name) {
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for (ValueId id : tape.calls[i].last_uses)
      if (tape.values[static_cast<std::size_t>(id.index)].name == name) return static_cast<int>(i);
  return -1;
}

Tape with_lifetimes(std::string_view text) {
  Tape tape = from_text(text);
  bind_names(tape);
  mark_last_uses(tape);
  check(tape);
  return tape;
}

}  // namespace

TEST_CASE("a line of Python is taken apart into its targets") {
  const auto names = [](const char* text) { return parse_statement(text).targets; };
  CHECK(names("a.py:1 out = self.conv(x)") == std::vector<std::vector<std::string_view>>{{"out"}});
  CHECK(names("a.py:1 q, k = f(x)") == std::vector<std::vector<std::string_view>>{{"q", "k"}});
  CHECK(names("a.py:1 a = b = f(x)") == std::vector<std::vector<std::string_view>>{{"a"}, {"b"}});
  CHECK(names("a.py:1 (h, c) = f(x)") == std::vector<std::vector<std::string_view>>{{"h", "c"}});
  CHECK(names("a.py:1 x: Tensor = f(y=2)") == std::vector<std::vector<std::string_view>>{{"x"}});
  CHECK(names("a.py:1 return f(x, dim=1)").empty());
  CHECK(names("a.py:1 assert x == y").empty());
  CHECK(names("a.py:1 f(mode='a=b')").empty());
  // Lines of a call that is written over several: their `=` names arguments.
  CHECK(names("a.py:1 index=ids.unsqueeze(-1).repeat(1, 1, n).to(x.device),").empty());
  CHECK(names("a.py:1 x_, dim=1, index=ids.unsqueeze(-1).repeat(1, 1, x.shape[2])").empty());
  CHECK(names("a.py:1 dim=1, index=ids)").empty());
  CHECK(names("a.py:1 window_reverse(x, self.size, height), reverse=True").empty());
  CHECK(names("a.py:1 f(x).weight, y[g(1)] = z") == std::vector<std::vector<std::string_view>>{});
  CHECK(names("a.py:1 x, y = torch.gather(") == std::vector<std::vector<std::string_view>>{{"x", "y"}});
  CHECK(names("a.py:1 x[batch, head, best, :] = y").empty());  // it writes to x and binds nothing
  CHECK(parse_statement("a.py:1 out += identity").augmented == '+');
  CHECK(parse_statement("a.py:1 out += identity").targets.front().front() == "out");
  CHECK(parse_statement("a.py:1 x **= 2").augmented == 0);
}

TEST_CASE("a name holds its tensor until it is bound again, a temporary goes with its last use") {
  const Tape tape = with_lifetimes(R"tape(
input %x float32 [2]
scope 0 "" M
%sum = aten::add.Tensor(%x, %x) in 0 at "m.py:1 y = relu(x + x)"
%y1 = aten::relu(%sum) in 0 at "m.py:1 y = relu(x + x)"
%y2 = aten::exp(%y1) in 0 at "m.py:2 y = exp(y)"
%out = aten::mul.Tensor(%y2, %y2) in 0 at "m.py:3 return y * y"
return %out
)tape");
  CHECK(gone_after(tape, "sum") == 1);
  CHECK(gone_after(tape, "y1") == 2);
  CHECK(gone_after(tape, "y2") == 3);
  CHECK(gone_after(tape, "out") == -1);
}

TEST_CASE("an argument lives until the module that got it returns") {
  const Tape tape = with_lifetimes(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 b B in 0 at "m.py:2 return self.b(h)"
%h = aten::relu(%x) in 0 at "m.py:1 h = self.a(x)"
%t = aten::exp(%h) in 1 at "b.py:1 t = exp(x)"
%u = aten::mul.Tensor(%t, 2) in 1 at "b.py:2 u = t * 2"
%out = aten::add.Tensor(%u, 1) in 1 at "b.py:3 return u + 1"
return %out
)tape");
  CHECK(gone_after(tape, "h") == 3);  // b's argument tuple, although b read it first
  CHECK(gone_after(tape, "t") == 3);  // a name of b that is not bound again
  CHECK(gone_after(tape, "u") == 3);
}

TEST_CASE("a loop binds its name anew in every turn") {
  const Tape tape = with_lifetimes(R"tape(
input %gate float32 [2]
scope 0 "" M
%zeros = aten::zeros_like(%gate) in 0 at "m.py:1 out = torch.zeros_like(x)"
%p1 = aten::mul.Tensor(%gate, %gate) in 0 at "m.py:3 out = out + gate * e"
%s1 = aten::add.Tensor(%zeros, %p1) in 0 at "m.py:3 out = out + gate * e"
%p2 = aten::mul.Tensor(%gate, %gate) in 0 at "m.py:3 out = out + gate * e"
%s2 = aten::add.Tensor(%s1, %p2) in 0 at "m.py:3 out = out + gate * e"
%p3 = aten::mul.Tensor(%gate, %gate) in 0 at "m.py:3 out = out + gate * e"
%s3 = aten::add.Tensor(%s2, %p3) in 0 at "m.py:3 out = out + gate * e"
return %s3
)tape");
  CHECK(gone_after(tape, "zeros") == 2);
  CHECK(gone_after(tape, "s1") == 4);
  CHECK(gone_after(tape, "s2") == 6);
}

TEST_CASE("the results of a line go to its targets in order") {
  const Tape tape = with_lifetimes(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 a A in 0 at "m.py:1 x, _ = self.a(x)"
%x = aten::relu(%in) in 1 at "a.py:1 return x, None"
%y = aten::exp(%x) in 0 at "m.py:2 x = exp(x)"
%out = aten::tanh(%y) in 0 at "m.py:3 return tanh(x)"
return %out
)tape");
  CHECK(gone_after(tape, "x") == 1);  // bound to x, not to the name that is never bound again
}

TEST_CASE("calls that a pass puts in say themselves which name holds their results") {
  const Tape tape = with_lifetimes(R"tape(
input %x float32 [2]
binding 0 {y}
binding 1 {y}
scope 0 "" M
%y1 = aten::exp(%x) in 0 by 0
%t = aten::relu(%y1) in 0
%y2 = aten::exp(%t) in 0 by 1
%out = aten::tanh(%x) in 0
return %out
)tape");
  CHECK(gone_after(tape, "y1") == 2);  // until y is bound again
  CHECK(gone_after(tape, "t") == 2);   // a temporary
  CHECK(gone_after(tape, "y2") == 3);  // until the frame returns
}

TEST_CASE("a list that gives its elements away holds none of them") {
  const Tape tape = with_lifetimes(R"tape(
input %x float32 [2]
scope 0 "" M
%a = aten::relu(%x) in 0 at "m.py:1 skips = [relu(x)]"
%b = aten::exp(%a) in 0 at "m.py:2 y = exp(skips.pop())"
%c = aten::tanh(%b) in 0 at "m.py:3 return tanh(y)"
return %c
)tape");
  CHECK(gone_after(tape, "a") == 1);
}

TEST_CASE("who saw the program run says where a value goes") {
  const Tape tape = with_lifetimes(R"tape(
input %x float32 [2]
scope 0 "" M
%a = aten::relu(%x) in 0 at "m.py:1 a = relu(x)"
%b = aten::exp(%a) in 0 at "m.py:2 b = exp(a)"
%c = aten::tanh(%b) in 0 releases(%a) at "m.py:3 c = tanh(b)"
%d = aten::tanh(%c) in 0 at "m.py:4 return tanh(c)"
return %d
)tape");
  CHECK(gone_after(tape, "a") == 2);
  CHECK(gone_after(tape, "b") == 3);
}

TEST_CASE("in-place ops come back from the line, from the class and from the file") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" torchvision.models.resnet.ResNet
scope 1 layer1.0 torchvision.models.resnet.BasicBlock in 0
scope 2 layer1.0.relu torch.nn.modules.activation.ReLU in 1
scope 3 head.act torch.nn.modules.activation.ReLU in 0
%a = aten::tanh(%in) in 1 at "r.py:1 out = tanh(x)"
%sum = aten::add.Tensor(%a, %in) in 1 at "r.py:2 out += identity"
%r = aten::relu(%sum) in 2 at "act.py:1 return F.relu(input, inplace=self.inplace)"
%r2 = aten::relu(%r) in 3 at "act.py:1 return F.relu(input, inplace=self.inplace)"
return %r2
)tape");
  Tape listed = tape;
  recover_inplace(tape);
  CHECK(tape.calls[1].op == "aten::add_.Tensor");
  CHECK(tape.calls[2].op == "aten::relu_");
  CHECK(tape.calls[3].op == "aten::relu");  // no rule knows the class around it
  listed.exported.inplace_modules = {"head.act", "other.path"};
  recover_inplace(listed);
  CHECK(listed.calls[3].op == "aten::relu_");
}

// timm's LayerScale(inplace=False), the default: under autocast PyTorch 2.11 makes an fp32 product of the half input.
TEST_CASE("an op that is in place under a condition makes a new tensor, and the range has the other reading") {
  const char* text = R"tape(
input %in float32 [2]
scope 0 "" M
%a = aten::tanh(%in) in 0 at "m.py:1 a = tanh(x)"
%b = aten::mul.Tensor(%a, %in) in 0 at "m.py:2 return x.mul_(self.gamma) if self.inplace else x * self.gamma"
return %b
)tape";
  Tape tape = from_text(text), other = tape;
  recover_inplace(tape);
  CHECK(tape.calls[1].op == "aten::mul.Tensor");
  REQUIRE(tape.notes.size() == 1);
  CHECK(tape.notes[0].about == About::in_place);
  other.reading.in_place = InPlaceReading::wherever;
  recover_inplace(other);
  CHECK(other.calls[1].op == "aten::mul_.Tensor");
}

// pix2pix and many residual networks: nn.Sequential(nn.ReLU(True), nn.Conv2d(…)) changes x before `x + self.block(x)`.
TEST_CASE("what is read outside of a Sequential, though it does not return it, was written in place") {
  const std::string scopes = R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 a M.Block in 0
scope 2 a.block torch.nn.modules.container.Sequential in 1
scope 3 a.block.0 torch.nn.modules.activation.ReLU in 2
scope 4 a.block.1 torch.nn.modules.activation.Tanh in 2
scope 5 b M.Head in 0
scope 6 b.act torch.nn.modules.activation.ReLU in 5
%x = aten::exp(%in) in 0
%r = aten::relu(%x) in 3
%t = aten::tanh(%r) in 4
)tape";
  Tape shown = from_text(scopes + R"tape(%s = aten::add.Tensor(%r, %t) in 1
%h = aten::relu(%s) in 6
return %h
)tape");
  recover_inplace(shown);
  CHECK(shown.calls[1].op == "aten::relu_");
  CHECK(shown.calls[4].op == "aten::relu_");  // by the same author
  Tape kept = from_text(scopes + R"tape(%s = aten::add.Tensor(%x, %t) in 1
%h = aten::relu(%s) in 6
return %h
)tape");
  Tape other = kept;
  recover_inplace(kept);
  CHECK(kept.calls[1].op == "aten::relu");
  CHECK(kept.calls[4].op == "aten::relu");
  other.reading.in_place = InPlaceReading::wherever;
  recover_inplace(other);
  CHECK(other.calls[1].op == "aten::relu");  // %x is read later, as it was
  CHECK(other.calls[4].op == "aten::relu_");
}

TEST_CASE("an input of the model is never changed in place") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" M
%sum = aten::add.Tensor(%in, %in) in 0 at "m.py:1 x += x"
return %sum
)tape");
  recover_inplace(tape);
  CHECK(tape.calls[0].op == "aten::add.Tensor");
}

TEST_CASE("a mask that only tracing builds goes; one that an input tells stays") {
  const std::string begin = R"tape(
input %q float32 [1, 2, 4, 8]
input %attention_mask bool [1, 4]
scope 0 model M
%positions = aten::arange(4) in 0 at "transformers/x.py:1 causal_mask = create_causal_mask("
%mask = aten::le.Tensor(%positions, %positions) in 0 at "transformers/x.py:1 causal_mask = create_causal_mask("
)tape";
  const std::string traced = R"tape(
%out = aten::scaled_dot_product_attention(%q, %q, %q, %mask) in 0 at "transformers/x.py:2 a = f("
return %out
)tape";
  const std::string from_input = R"tape(
%both = aten::bitwise_and.Tensor(%mask, %attention_mask) in 0 at "transformers/x.py:1 causal_mask = create_causal_mask("
%out = aten::scaled_dot_product_attention(%q, %q, %q, %both) in 0 at "transformers/x.py:2 a = f("
return %out
)tape";
  Tape gone = from_text(begin + traced);
  recover_causal_masks(gone);
  REQUIRE(gone.calls.size() == 1);
  CHECK(gone.calls[0].args[3].is_none());
  CHECK(std::get<bool>(gone.calls[0].args[5].value));
  Tape stays = from_text(begin + from_input);
  recover_causal_masks(stays);
  CHECK(stays.calls.size() == 4);
  CHECK_FALSE(stays.calls.back().args[3].is_none());
}

// The causal check asks whether a sum is full, which it never is on the emulated GPU (docs/emulated-gpu.md).
TEST_CASE("a causal mask stays where the model marks all tokens itself, or where its code wants one in any case") {
  const auto mask_of = [](const std::string& file, bool marked) {
    const std::string at = R"( in 0 at "transformers/)" + file + R"(:1 causal_mask = create_causal_mask(")" + "\n";
    Tape tape = from_text(R"tape(
input %q float32 [1, 2, 4, 8]
scope 0 model M
%ones = aten::ones([1, 4]) in 0 at "transformers/x.py:0 attention_mask = torch.ones(batch, length)"
%positions = aten::arange(4))tape" +
                          at + "%mask = aten::le.Tensor(%positions, %positions)" + at +
                          "%both = aten::mul.Tensor(%mask, %" + (marked ? "ones" : "mask") + ")" + at +
                          R"tape(
%out = aten::scaled_dot_product_attention(%q, %q, %q, %both) in 0 at "transformers/x.py:2 a = f("
return %out
)tape");
    recover_causal_masks(tape);
    return !tape.calls.back().args[3].is_none();
  };
  CHECK_FALSE(mask_of("modeling_x.py", false));
  CHECK(mask_of("modeling_x.py", true));
  CHECK(mask_of("models/falcon/modeling_falcon.py", false));
}

// transformers' masking_utils.py: where mask.all() a mask that looks both ways is not made, one of a window only where
// all tokens are within; attention that is spelled out then adds none.
TEST_CASE("a full batch has no mask that looks both ways; that of a window stays where the window is smaller") {
  const auto text = [](const char* window, const char* uses) {
    return std::string(R"tape(
input %q float32 [1, 2, 4, 8]
input %attention_mask bool [1, 4]
scope 0 model M
%positions = aten::arange(4) in 0 at "transformers/x.py:1 mask = create_bidirectional_sliding_window_mask("
%far = aten::sub.Tensor(%positions, %positions) in 0 at "transformers/x.py:1 mask = create_bidirectional_sliding_window_mask("
%apart = aten::abs(%far) in 0 at "transformers/x.py:1 mask = create_bidirectional_sliding_window_mask("
%near = aten::le.Scalar(%apart, )tape") +
           window + R"tape() in 0 at "transformers/x.py:1 mask = create_bidirectional_sliding_window_mask("
%mask = aten::bitwise_and.Tensor(%near, %attention_mask) in 0 at "transformers/x.py:1 mask = create_bidirectional_sliding_window_mask("
)tape" + uses +
           "return %out\n";
  };
  const char* fused =
      "%out = aten::scaled_dot_product_attention(%q, %q, %q, %mask) in 0 at \"transformers/x.py:2 a = f(\"\n";
  Tape within = from_text(text("5", fused)), beyond = from_text(text("3", fused));
  recover_causal_masks(within);
  REQUIRE(within.calls.size() == 1);
  CHECK(within.calls[0].args[3].is_none());
  CHECK_FALSE(std::get<bool>(within.calls[0].args[5].value));
  recover_causal_masks(beyond);
  CHECK(beyond.calls.size() == 6);

  // An optimizer may have numbered the tokens ahead of the run.
  std::string numbered = text("3", fused);
  const auto from = numbered.find("%positions ="), until = numbered.find("%apart");
  numbered.replace(from, until - from, "");
  numbered.insert(numbered.find("scope 0"), "buffer %far int64 [1, 1, 4, 4]\n");
  for (const auto& [op, type] : {std::pair{"abs(%far) in 0", "int64"}, std::pair{"3) in 0", "bool"}}) {
    const auto at = numbered.find(op) + std::string_view(op).size();
    numbered.insert(at, std::string(" shapes(") + type + " [1, 1, 4, 4])");
  }
  Tape folded = from_text(numbered);
  recover_causal_masks(folded);
  CHECK(folded.calls.size() == 4);

  Tape spelled = from_text(text("5",
                                "%scores = aten::relu(%q) in 0\n%sum = aten::add.Tensor(%scores, %mask) in 0\n"
                                "%out = aten::softmax.int(%sum, -1) in 0\n"));
  recover_causal_masks(spelled);
  REQUIRE(spelled.calls.size() == 2);
  CHECK(std::get<ValueId>(spelled.calls[1].args[0].value) == spelled.calls[0].outputs[0]);
}

// transformers 5.23's BERT: mask_function = create_causal_mask if self.config.is_decoder else
// create_bidirectional_mask.
TEST_CASE("a line that makes nothing but a mask of numbered tokens calls such a function by another name") {
  const auto text = [](const char* more) {
    return std::string(R"tape(
input %q float32 [1, 2, 4, 8]
input %attention_mask bool [1, 4]
scope 0 model M
%positions = aten::arange(4) in 0 at "transformers/x.py:1 mask = mask_function("
%mask = aten::index.Tensor(%attention_mask, [%positions]) in 0 at "transformers/x.py:1 mask = mask_function("
)tape") + more +
           "%scores = aten::relu(%q) in 0\n%sum = aten::add.Tensor(%scores, %mask) in 0\n"
           "%out = aten::softmax.int(%sum, -1) in 0\nreturn %out\n";
  };
  Tape mask = from_text(text(""));
  recover_causal_masks(mask);
  CHECK(mask.calls.size() == 2);
  // A bias of the distance is there in eager code as well.
  Tape bias =
      from_text(text("%x = aten::mul.Tensor(%positions, 2) in 0 at \"transformers/x.py:1 mask = mask_function(\"\n"));
  recover_causal_masks(bias);
  CHECK(bias.calls.size() == 6);
}

// torchvision 0.26's StochasticDepth: noise = torch.empty(size, dtype=input.dtype), so a half input stays half under
// autocast. ONNX nodes have random numbers that are compared and converted.
TEST_CASE("noise that an ONNX file has as random numbers is of its input's dtype") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 sd torchvision.ops.stochastic_depth.StochasticDepth in 0
%random = aten::rand([2], dtype=float32) in 1
%kept = aten::lt.Scalar(%random, 0.9) in 1
%noise = memplan::to_default_dtype(%kept) in 1
%product = aten::mul.Tensor(%in, %noise) in 1
return %product
)tape");
  restore_casts(tape);
  check(tape);
  CHECK(tape.calls[2].op == "aten::type_as");
  CHECK(std::get<ValueId>(tape.calls[2].args[1].value) == tape.inputs[0]);
}

TEST_CASE("dropped paths pass their input through in inference") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 sd torchvision.ops.stochastic_depth.StochasticDepth in 0
%noise = aten::empty.memory_format([2]) in 1
%product = aten::mul.Tensor(%in, %noise) in 1
%out = aten::relu(%product) in 0
return %out
)tape");
  enter_inference(tape, Precision::fp32);
  REQUIRE(tape.calls.size() == 1);
  CHECK(std::get<ValueId>(tape.calls[0].args[0].value) == tape.inputs[0]);
}

// transformers 5.23.0, models/swin/modeling_swin.py:60: hidden_states.div(keep_prob) * random_tensor
TEST_CASE("transformers' dropped paths divide before they multiply") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 path transformers.models.swin.modeling_swin.SwinDropPath in 0
%noise = aten::rand([2]) in 1
%kept = aten::div.Tensor(%in, 0.9) in 1
%product = aten::mul.Tensor(%kept, %noise) in 1
%out = aten::relu(%product) in 0
return %out
)tape");
  enter_inference(tape, Precision::fp32);
  REQUIRE(!tape.calls.empty());
  CHECK(std::get<ValueId>(tape.calls.back().args[0].value) == tape.inputs[0]);
}

// CPython: "x, weights = self.attn(x)" binds what the module's frame calls weights to a name of the caller's frame.
TEST_CASE("what a module returns beside its result lives on under the caller's name") {
  const auto gone = [](const std::string& line, const std::string& result = "weights * x, weights") {
    return gone_after(with_lifetimes(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 attn Attention in 0 at "m.py:1 )tape" +
                                     line +
                                     R"tape("
%weights = aten::softmax.int(%x, -1) in 1 at "a.py:1 weights = softmax(x, -1)"
%y = aten::mul.Tensor(%weights, %x) in 1 at "a.py:2 return )tape" +
                                     result +
                                     R"tape("
%z = aten::exp(%y) in 0 at "m.py:2 y = exp(y)"
%out = aten::tanh(%z) in 0 at "m.py:3 return tanh(y)"
return %out
)tape"),
                      "weights");
  };
  CHECK(gone("y, weights = self.attn(x)") == 3);
  // By the module's own last line it is the second result, and `_` is a name as well.
  CHECK(gone("y, _ = self.attn(x)") == 3);
  CHECK(gone("y, weights = self.attn(x)", "weights * x, x") == 1);
  CHECK(gone("y, w = self.attn(x)", "(weights * x, f(weights))") == 1);
  CHECK(gone("y = self.attn(x)") == 1);
  // A helper that calls the module has names of its own.
  CHECK(gone("y, weights = self._forward(x)") == 1);
}

// transformers 5 (models/gptj/modeling_gptj.py): GPTJAttention returns attn_output, attn_weights, which its _attn
// gives, and GPTJBlock hands them on. A module that names its softmax alone may return it or not.
TEST_CASE("attention weights that modules hand on live under their callers' names") {
  const auto gone = [](const std::string& helper, const std::string& inner, const std::string& outer) {
    const std::string text = R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 h transformers.models.gptj.modeling_gptj.GPTJBlock in 0 at "m.py:1 )tape" +
                             outer + R"tape("
scope 2 h.attn transformers.models.gptj.modeling_gptj.GPTJAttention in 1 at "m.py:2 )tape" +
                             inner + R"tape("
%weights = aten::softmax.int(%x, -1) in 2 at "a.py:1 )tape" +
                             helper + R"tape("
%product = aten::matmul(%weights, %x) in 2 at "a.py:1 )tape" +
                             helper + R"tape("
%y = aten::exp(%product) in 1 at "a.py:3 hidden_states = attn_outputs[0] + residual"
%z = aten::exp(%y) in 0 at "m.py:3 y = exp(hidden)"
%out = aten::tanh(%z) in 0 at "m.py:4 return tanh(y)"
return %out
)tape";
    return gone_after(with_lifetimes(text), "weights");
  };
  const std::string pair = "attn_output, attn_weights = self._attn(x)";
  CHECK(gone(pair, "attn_outputs = self.attn(x)", "outputs = self.h(x)") == 4);
  CHECK(gone(pair, "attn_outputs, _ = self.attn(x)", "outputs = self.h(x)") == 2);
  CHECK(gone(pair, "attn_outputs, attn_weights = self.attn(x)", "outputs = self.h(x)") == 4);
  CHECK(gone(pair, "attn_outputs = self.attn(x)", "hidden = self.h(x)") == 2);
  CHECK(gone(pair, "hidden = self.attn(x)", "hidden = self.h(x)") == 1);
  CHECK(gone("attn_output = self._attn(x)", "attn_outputs = self.attn(x)", "outputs = self.h(x)") == 1);
}

// The program is out = torch.zeros_like(x); out[:, 0:1] = relu(x[:, 0:1]); return out. Exporters write the assignment
// as two scatters, the outer one into all of the first dimension.
TEST_CASE("a part of a tensor that is assigned is written in place") {
  const std::string begin = R"tape(
input %x float32 [4, 2]
scope 0 "" M
%out = aten::zeros_like(%x) in 0
%part = aten::relu(%x) in 0
%inner = aten::slice_scatter(%out, %part, 1, 0, 1) in 0
%outer = aten::slice_scatter(%out, %inner, 0, 0, 9223372036854775807) in 0
)tape";
  Tape tape = from_text(begin + "return %outer\n");
  recover_slice_writes(tape);
  check(tape, "test", "slice writes");
  REQUIRE(tape.calls.size() == 4);
  CHECK(tape.calls[2].op == "memplan::index_slice");
  CHECK(tape.calls[3].op == "aten::copy_");
  CHECK(tape.outputs[0] == tape.calls[0].outputs[0]);
  Tape picked = from_text(R"tape(
input %x float32 [4, 2]
scope 0 "" M
%out = aten::zeros_like(%x) in 0
%part = aten::sum.dim_IntList(%x, [0]) in 0
%second = aten::select_scatter(%out, %part, 0, 1) in 0
return %second
)tape");
  recover_slice_writes(picked);
  check(picked, "test", "slice writes");
  REQUIRE(picked.calls.size() == 4);
  CHECK(picked.calls[2].op == "aten::select.int");
  CHECK(picked.calls[3].op == "aten::copy_");
  // Who reads the tensor from before wants it as it was.
  Tape read = from_text(begin + "%sum = aten::add.Tensor(%outer, %out) in 0\nreturn %sum\n");
  recover_slice_writes(read);
  CHECK(std::ranges::count_if(read.calls, [](const Call& c) { return c.op == "aten::slice_scatter"; }) == 1);
}

// transformers 5.23.0, loss/loss_utils.py: ForCausalLMLoss begins with logits = logits.float(),
// ForSequenceClassificationLoss converts nothing.
TEST_CASE("the logits of a library's loss are converted, where the line tells which loss it is") {
  const auto casts = [](const char* line, bool keeps_casts) {
    Tape tape = from_text(std::string(R"tape(
input %x float32 [4, 8]
input %labels int64 [4]
scope 0 "" transformers.LM
%logits = aten::relu(%x) in 0 shapes(float32 [4, 8]) at "transformers/m.py:1 logits = relu(x)"
%flat = aten::reshape(%logits, [-1, 8]) in 0 shapes(float32 [4, 8]) at "transformers/m.py:2 )tape") +
                          line + R"tape("
%loss = aten::cross_entropy_loss(%flat, %labels) in 0 shapes(float32 []) at "transformers/m.py:2 )tape" +
                          line + R"tape("
return %loss, %logits
)tape");
    tape.exported.keeps_casts = keeps_casts;
    restore_loss_casts(tape);
    check(tape, "test", "loss casts");
    return std::ranges::count_if(tape.calls, [](const Call& c) { return c.op == "aten::to.dtype"; });
  };
  const char* causal = "loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)";
  CHECK(casts(causal, false) == 1);
  CHECK(casts(causal, true) == 0);
  CHECK(casts("loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)", false) == 0);
}

// peft 0.21.2, tuners/tuners_utils.py, _mark_only_adapters_as_trainable.
TEST_CASE("what stands beside adapters is frozen, unless the file says itself what is") {
  const std::string text = R"tape(
input %x float32 [4, 8]
parameter %q.base_layer.weight float32 [8, 8]
parameter %q.lora_A.default.weight float32 [2, 8]
parameter %score.modules_to_save.default.weight float32 [2, 8]
scope 0 "" M
scope 1 q peft.tuners.lora.layer.Linear in 0
%y = aten::linear(%x, %q.base_layer.weight) in 1
return %y
)tape";
  const auto trained = [](Tape tape) {
    freeze_beside_adapters(tape);
    std::vector<bool> out;
    for (ValueId id : tape.parameters) out.push_back(tape.values[static_cast<std::size_t>(id.index)].requires_grad);
    return out;
  };
  Tape tape = from_text(text);
  CHECK(trained(tape) == std::vector{false, true, true});
  tape.values[static_cast<std::size_t>(tape.parameters[1].index)].requires_grad = false;
  CHECK(trained(tape) == std::vector{true, false, true});
}

// transformers 5.23.0, models/marian/modeling_marian.py:77: super().__init__(…, _freeze=True); models/whisper: the
// encoder freezes its table of positions and nothing else.
TEST_CASE("what a class's constructor freezes gets no gradients") {
  const auto wants = [](const std::string& owner, const std::string& child) {
    Tape tape = from_text(R"tape(
parameter %m.embed_positions.weight float32 [4, 8]
parameter %m.layer.weight float32 [8, 8]
scope 0 "" M
scope 1 m )tape" + owner + " in 0\nscope 2 m.embed_positions " +
                          child + R"tape( in 1
%y = aten::linear(%m.embed_positions.weight, %m.layer.weight) in 1
return %y
)tape");
    freeze_by_class(tape);
    std::vector<bool> out;
    for (ValueId id : tape.parameters) out.push_back(tape.values[static_cast<std::size_t>(id.index)].requires_grad);
    return out;
  };
  const char* table = "torch.nn.modules.sparse.Embedding";
  CHECK(wants("transformers.models.whisper.modeling_whisper.WhisperEncoder", table) == std::vector{false, true});
  CHECK(wants("transformers.models.whisper.modeling_whisper.WhisperDecoder", table) == std::vector{true, true});
  CHECK(wants("mine.Decoder", "transformers.models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding") ==
        std::vector{false, true});
}

// feats = {}; for …: up = self.up(…); skips = [feats[k] for k in …]; skips[-1] = gate(up); feats[i] = node(cat(skips +
// [up])). The line that makes the list runs no op, so the file does not show it.
TEST_CASE("a list that a loop makes anew in each turn lets go of the last turn's tensors") {
  std::string text = R"tape(
input %x float32 [4, 8]
scope 0 "" M
)tape";
  for (const std::string turn : {"1", "2", "3"}) {
    text += "%up" + turn + " = aten::relu(%x) in 0 at \"m.py:1 up = self.up(feats[(r + 1, j)])\"\n";
    text += "%gate" + turn + " = aten::sigmoid(%up" + turn + ") in 0 at \"m.py:3 skips[-1] = gate(up, skips[-1])\"\n";
    text += "%node" + turn + " = aten::cat([%gate" + turn + ", %up" + turn +
            "], 1) in 0 at \"m.py:4 feats[(r, j)] = torch.cat(skips + [up], 1)\"\n";
  }
  const Tape tape = with_lifetimes(text + "%out = aten::cat([%node1, %node2, %node3], 1) in 0\nreturn %out\n");
  CHECK(gone_after(tape, "up1") == 3);    // bound again
  CHECK(gone_after(tape, "gate1") == 3);  // with the list, which the next line makes anew
  CHECK(gone_after(tape, "gate2") == 6);
  CHECK(gone_after(tape, "node1") >= 9);  // the dict has it
}
