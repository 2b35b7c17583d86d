// What classes and lines of Python libraries say that a file does not: conversions, results that are kept, gradients
// that end.
#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/restore/casts.h"
#include "estimators/restore/names.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"
#include "onnx_builder.h"

using namespace memplan;
using test::ops_of;
using Ops = std::vector<std::string>;

// timm 1.0.31, layers/norm.py:286: rms_norm(x.float(), …, self.weight.float(), …).to(x.dtype)
TEST_CASE("a norm that runs in fp32 converts its input and its result") {
  const auto text = [](const char* module) {
    return std::string("input %in float32 [2, 8]\nparameter %norm.weight float32 [8]\nscope 0 \"\" M\nscope 1 norm ") +
           module +
           " in 0\n%y = aten::rms_norm(%in, [8], %norm.weight) in 1\n%out = aten::relu(%y) in 0\nreturn %out\n";
  };
  Tape wide = from_text(text("timm.layers.norm.RmsNormFp32"));
  restore_casts(wide);
  check(wide);
  CHECK(ops_of(wide) == Ops{"aten::to.dtype", "aten::to.dtype", "aten::rms_norm", "aten::type_as", "aten::relu"});
  CHECK(std::get<ValueId>(wide.calls[4].args[0].value) == wide.calls[3].outputs[0]);
  Tape plain = from_text(text("timm.layers.norm.RmsNorm"));
  restore_casts(plain);
  CHECK(plain.calls.size() == 2);
}

// timm 1.0.31, models/qwen3_vit.py:292: x + pos_embed.to(x.dtype)
TEST_CASE("positions that are added in the dtype of what they are added to") {
  Tape tape = from_text(R"tape(
input %in float32 [2, 4, 8]
parameter %pos_embed float32 [1, 4, 8]
scope 0 "" timm.models.qwen3_vit.Qwen3VitEncoder
%x = aten::relu(%in) in 0
%out = aten::add.Tensor(%x, %pos_embed) in 0
return %out
)tape");
  restore_casts(tape);
  check(tape);
  CHECK(ops_of(tape) == Ops{"aten::relu", "aten::type_as", "aten::add.Tensor"});
}

// timm 1.0.31, layers/attention.py:278: q = torch.cat([q[:, :, :npt, :], rotate(q[:, :, npt:, :])], dim=2).type_as(v),
// where npt is 0: the conversion and the copy of the cat are in no fp32 export.
TEST_CASE("a line that converts its result at its end does so") {
  const auto text = [](const char* line) {
    return std::string(R"tape(
input %in float32 [2, 8]
scope 0 "" M
%v = aten::relu(%in) in 0 at "m.py:1 v = relu(x)"
%q = aten::sin(%v) in 0 at "m.py:2 q = rotate(v)"
%turned = aten::cos(%q) in 0 at "m.py:3 )tape") +
           line + R"tape("
%out = aten::mul.Tensor(%turned, %v) in 0 at "m.py:4 return q * v"
return %out
)tape";
  };
  const auto ops_of_line = [&](const char* line) {
    Tape tape = from_text(text(line));
    bind_names(tape);
    follow_asked_dtypes(tape);
    check(tape);
    const Ops all = ops_of(tape);
    return Ops(all.begin() + 2, all.end() - 1);
  };
  CHECK(ops_of_line("q = rotate(q).type_as(v)") == Ops{"aten::cos", "aten::type_as"});
  CHECK(ops_of_line("q = rotate(q).to(v.dtype)") == Ops{"aten::cos", "aten::type_as"});
  CHECK(ops_of_line("q = torch.cat([q[:, :, :0], rotate(q)], dim=2).type_as(v)") ==
        Ops{"aten::cos", "aten::type_as", "aten::cat"});
  CHECK(ops_of_line("q = rotate(q) + rotate(v).type_as(v)") == Ops{"aten::cos"});  // converts a part of it
  CHECK(ops_of_line("q = rotate(q)") == Ops{"aten::cos"});
}

// transformers 5.13.1: position_embeddings = self.rotary_emb(hidden_states, position_ids); forward ends with
// cos.to(dtype=x.dtype). Moonshine's hidden states come out of a convolution, 16-bit under autocast.
TEST_CASE("rotary embeddings come out in the dtype of what their caller passes first") {
  const auto ops = [](const char* line) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [2, 8]
buffer %inv_freq float32 [8]
scope 0 "" M
scope 1 rotary_emb transformers.models.moonshine.modeling_moonshine.MoonshineRotaryEmbedding in 0 at "m.py:2 )tape") +
                          line + R"tape("
%x = aten::relu(%in) in 0 at "m.py:1 hidden_states = relu(x)"
%freqs = aten::mul.Tensor(%inv_freq, 2) in 1
%cos = aten::cos(%freqs) in 1
%out = aten::mul.Tensor(%x, %cos) in 0 at "m.py:3 return hidden_states * cos"
return %out
)tape");
    bind_names(tape);
    restore_casts(tape);
    check(tape);
    const auto last = std::ranges::find(tape.calls, "aten::cos", &Call::op) + 1;
    REQUIRE(!last->args.empty());
    const auto* like = last->args.size() > 1 ? std::get_if<ValueId>(&last->args[1].value) : nullptr;
    return last->op + (like ? " of " + tape.values[like->index].name : "");
  };
  CHECK(ops("cos = self.rotary_emb(hidden_states, position_ids)") == "aten::type_as of x");
  CHECK(ops("cos = self.rotary_emb(x.new_ones(2), position_ids)") == "memplan::to_default_dtype");
  CHECK(ops("cos = self.rotary_emb(unknown, position_ids)") == "memplan::to_default_dtype");
}

// own code (CoCa, PaLM): einsum("i , j -> i j", seq, self.inv_freq) is 16-bit under autocast
TEST_CASE("a RotaryEmbedding of the model's own is what its lines say") {
  const auto casts = [](const char* of_class, const char* line) {
    Tape tape = from_text(std::string(R"tape(
input %x float32 [2, 8]
buffer %inv_freq float32 [8]
scope 0 "" M
scope 1 rotary )tape") + of_class +
                          R"tape( in 0 at "m.py:2 cos = self.rotary(x)"
%freqs = aten::mul.Tensor(%inv_freq, 2) in 1)tape" +
                          line + R"tape(
%cos = aten::cos(%freqs) in 1)tape" +
                          line + R"tape(
%out = aten::mul.Tensor(%x, %cos) in 0 at "m.py:3 return x * cos"
return %out
)tape");
    bind_names(tape);
    restore_casts(tape);
    return tape.recovered.size();
  };
  constexpr auto shown = " at \"m.py:9 return (self.inv_freq * 2).cos()\"";
  CHECK(casts("own.RotaryEmbedding", shown) == 0);
  CHECK(casts("own.RotaryEmbedding", "") == 1);  // behind a decorator
  CHECK(casts("transformers.models.llama.modeling_llama.LlamaRotaryEmbedding", shown) == 1);
}

// peft 0.21.2, tuners/lora/layer.py:1089: torch_result_dtype = result.dtype, right after result = self.base_layer(x)
TEST_CASE("a name that holds a dtype is that of the tensor that had the other name first") {
  const auto like = [](const char* module) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [2, 8]
scope 0 "" )tape") + module +
                          R"tape(
%base = aten::relu(%in) in 0 at "layer.py:1088 result = self.base_layer(x)"
%sum = aten::add.Tensor(%base, 1.0) in 0 at "layer.py:1104 result = result + 1.0"
%to = memplan::to_default_dtype(%sum) in 0 at "layer.py:1113 result = result.to(torch_result_dtype)"
return %to
)tape");
    bind_names(tape);
    follow_asked_dtypes(tape);
    check(tape);
    const Call& last = tape.calls.back();
    return last.op == "aten::type_as" ? tape.values[std::get<ValueId>(last.args[1].value).index].name : last.op;
  };
  CHECK(like("peft.tuners.lora.layer.Linear") == "base");
  CHECK(like("mine.Linear") == "memplan::to_default_dtype");
}

// transformers 5.23.0, models/gpt_oss/modeling_gpt_oss.py:127: router_top_value, router_indices = torch.topk(…);
// softmax(router_top_value, dim=1, dtype=router_top_value.dtype), which a file writes as its own precision
TEST_CASE("a softmax in the dtype of a tensor that one of several names has") {
  const auto third = [](const char* dtype) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [2, 8]
scope 0 "" M
%v, %i = aten::topk(%in, 2) in 0 at "g.py:127 router_top_value, router_indices = torch.topk(x, 2)"
%s = aten::softmax.int(%v, 1, float32) in 0 at "g.py:128 scores = softmax(router_top_value, dim=1, dtype=)tape") +
                          dtype + R"tape()"
return %s
)tape");
    bind_names(tape);
    follow_asked_dtypes(tape);
    check(tape);
    const auto* like = std::get_if<ValueId>(&tape.calls[1].args[2].value);
    return like ? tape.values[static_cast<std::size_t>(like->index)].name : std::string("fixed");
  };
  CHECK(third("router_top_value.dtype") == "v");
  CHECK(third("torch.float32") == "fixed");
}

// timm 1.0.31, models/levit.py:304: in evaluation the looked-up biases stay in self.attention_bias_cache.
TEST_CASE("what a module keeps from its first pass on is there as a buffer is") {
  const auto kept = [](const char* module) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [2, 4]
parameter %attn.attention_biases float32 [2, 4]
buffer %attn.attention_bias_idxs int64 [4, 4]
scope 0 "" M
scope 1 attn )tape") + module +
                          R"tape( in 0
%bias = aten::index.Tensor(%attn.attention_biases, [None, %attn.attention_bias_idxs]) in 1 shapes(float32 [2, 4, 4])
%out = aten::add.Tensor(%in, %bias) in 1
return %out
)tape");
    keep_in_inference(tape);
    check(tape);
    return tape;
  };
  const Tape levit = kept("timm.models.levit.Attention");
  CHECK(ops_of(levit) == Ops{"aten::add.Tensor"});
  REQUIRE(levit.buffers.size() == 2);
  CHECK(levit.values[static_cast<std::size_t>(levit.buffers[1].index)].sizes == std::vector<std::int64_t>{2, 4, 4});
  CHECK(kept("mine.Attention").calls.size() == 2);
}

// peft 0.21.2, tuners/lora/dora.py:143: weight_norm = self.get_weight_norm(weight=…, lora_weight=lora_weight.detach(),
// …)
TEST_CASE("DoRA takes the norm of its weights without their gradients") {
  const auto detached = [](const char* module) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [8, 8]
parameter %dora.weight float32 [8, 8]
scope 0 "" M
scope 1 dora )tape") + module +
                          R"tape( in 0
%update = aten::relu(%in) in 1 at "peft/tuners/lora/dora.py:137 lora_weight = self.get_lora_weight("
%sum = aten::add.Tensor(%dora.weight, %update) in 1 at "peft/tuners/lora/dora.py:143 weight_norm = self.get_weight_norm("
%norm = aten::linalg_vector_norm(%sum, 2, [1]) in 1 at "peft/tuners/lora/dora.py:143 weight_norm = self.get_weight_norm("
%out = aten::div.Tensor(%update, %norm) in 1 at "peft/tuners/lora/dora.py:153 scale = magnitude / weight_norm"
return %out
)tape");
    recover_detached_arguments(tape);
    check(tape);
    return tape;
  };
  const Tape dora = detached("peft.tuners.lora.dora.DoraLinearLayer");
  CHECK(ops_of(dora) ==
        Ops{"aten::relu", "aten::detach", "aten::add.Tensor", "aten::linalg_vector_norm", "aten::div.Tensor"});
  CHECK(std::get<ValueId>(dora.calls[4].args[0].value) == dora.calls[0].outputs[0]);  // later lines have the gradient
  CHECK(detached("mine.Layer").calls.size() == 4);
}
