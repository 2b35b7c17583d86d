// What frames of a program hold, where the lines that say so run no op.
#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/restore/kept_keys.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"
#include "lives.h"

using namespace memplan;
using memplan::test::gone_after;

// transformers 5.23.0, models/nomic_bert/modeling_nomic_bert.py:292:
//   residual = hidden_states
//   hidden_states = self.mlp(hidden_states)
//   hidden_states = residual + self.post_mlp_dropout(hidden_states)
//   hidden_states = self.post_mlp_layernorm(hidden_states)
TEST_CASE("a name that no visible line binds holds what its line reads") {
  const auto gone = [](const char* sum, const char* more = "") {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 layer Layer in 0 at "m.py:9 return self.layer(x)"
%first = aten::relu(%in) in 1 at "m.py:1 hidden_states = relu(hidden_states)"
%mlp = aten::exp(%first) in 1 at "m.py:2 hidden_states = exp(hidden_states)"
%sum = aten::add.Tensor(%first, %mlp) in 1 at "m.py:3 )tape") +
                             sum + R"tape("
)tape" + more + R"tape(%out = aten::tanh(%sum) in 1 at "m.py:5 hidden_states = tanh(hidden_states)"
%last = aten::cos(%out) in 1 at "m.py:6 return hidden_states.cos()"
return %last
)tape";
    return gone_after(from_text(text), "first");
  };
  CHECK(gone("hidden_states = residual + hidden_states") == 4);
  CHECK(gone("hidden_states = residual + scale * hidden_states") == 2);  // two names could be its
  CHECK(gone("hidden_states = hidden_states + self.scale") == 2);
  // Bound again by a line that shows it.
  CHECK(gone("hidden_states = residual + hidden_states",
             "%r = aten::sin(%sum) in 1 at \"m.py:4 residual = sin(hidden_states)\"\n") == 3);
}

TEST_CASE("a hidden name lets go where it is seen to stand for another value") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" M
%first = aten::relu(%in) in 0 at "m.py:1 x = relu(x)"
%a = aten::exp(%first) in 0 at "m.py:3 x = exp(x)"
%second = aten::add.Tensor(%first, %a) in 0 at "m.py:4 x = residual + x"
%b = aten::exp(%second) in 0 at "m.py:6 x = sin(x)"
%sum = aten::add.Tensor(%second, %b) in 0 at "m.py:7 x = x + residual"
%out = aten::tanh(%sum) in 0 at "m.py:8 x = tanh(x)"
return %out
)tape");
  CHECK(gone_after(tape, "first") == 2);
  CHECK(gone_after(tape, "second") == 5);
}

// transformers 5.23.0, models/canine/modeling_canine.py:312: "key_layer = (" begins a statement whose last line is
// ".transpose(1, 2)"; :325 torch.matmul(query_layer, key_layer.transpose(-1, -2))
TEST_CASE("as many operands without a visible name as names without a visible line are theirs") {
  const auto tape = [](const char* line) {
    return from_text(std::string(R"tape(
input %in float32 [2, 2]
scope 0 "" M
%k = aten::sin(%in) in 0 at "m.py:2 .sin()"
%q = aten::cos(%in) in 0 at "m.py:5 .cos()"
%s = aten::matmul(%q, %k) in 0 at "m.py:6 )tape") +
                     line + R"tape("
%p = aten::softmax.int(%s, -1) in 0 at "m.py:7 scores = softmax(scores)"
%out = aten::tanh(%p) in 0 at "m.py:8 scores = tanh(scores)"
return %out
)tape");
  };
  for (const char* line : {"scores = torch.matmul(query, key)", "scores = torch.matmul(query, key.T)"}) {
    CHECK(gone_after(tape(line), "q") == 4);
    CHECK(gone_after(tape(line), "k") == 4);
  }
  CHECK(gone_after(tape("scores = self.product(query)"), "k") == 2);
}

// timm 1.0.31, models/vovnet.py:94: output = [x]; x = self.conv_mid(x, output), which appends and joins them
TEST_CASE("a list that a module was handed lives as long as its caller runs") {
  const auto gone = [](const char* module) {
    return gone_after(from_text(std::string(R"tape(
input %in float32 [2]
scope 0 "" Block
scope 1 mid )tape") + module + R"tape( in 0 at "v.py:97 x = self.conv_mid(x, output)"
%a = aten::relu(%in) in 1 at "v.py:37 concat_list.append(module(x))"
%b = aten::exp(%a) in 1 at "v.py:39 concat_list.append(module(concat_list[-1]))"
%c = aten::cat([%a, %b], 0) in 1 at "v.py:40 x = torch.cat(concat_list, dim=1)"
%d = aten::sin(%c) in 0 at "v.py:98 x = self.conv_concat(x)"
%e = aten::tanh(%d) in 0 at "v.py:100 x = self.attn(x)"
return %e
)tape"),
                      "a");
  };
  CHECK(gone("timm.models.vovnet.SequentialAppendList") == 4);
  CHECK(gone("mine.Append") == 2);
}

// transformers 5.23.0, models/t5/modeling_t5.py:887: Seq2SeqModelOutput has the encoder's result.
// models/roberta_prelayernorm/modeling_roberta_prelayernorm.py:661: sequence_output =
// self.LayerNorm(encoder_outputs[0])
TEST_CASE("a model returns its encoder's result beside its own if it has a decoder") {
  const auto gone = [](const char* next) {
    return gone_after(from_text(std::string(R"tape(
input %in float32 [2]
scope 0 "" Head
scope 1 model transformers.models.t5.modeling_t5.T5Model in 0 at "m.py:1 outputs = self.model(x)"
scope 2 model.encoder Stack in 1 at "t5.py:1 encoder_outputs = self.encoder(x)"
scope 3 model.)tape") + next + R"tape( Stack in 1 at "t5.py:2 y = self.next(encoder_outputs[0])"
%found = aten::relu(%in) in 2 at "s.py:1 return relu(x)"
%y = aten::exp(%found) in 3 at "s.py:1 return exp(x)"
%z = aten::sin(%y) in 0 at "m.py:2 z = sin(outputs[0])"
%out = aten::tanh(%z) in 0 at "m.py:3 return tanh(z)"
return %out
)tape"),
                      "found");
  };
  CHECK(gone("decoder") == 3);
  CHECK(gone("norm") == 1);
}

// transformers 5.23.0, models/megatron_bert/modeling_megatron_bert.py:324: feed_forward_chunk's ln_output.
TEST_CASE("a function that is called in chunks holds its norm") {
  const char* text = R"tape(
input %in float32 [2]
scope 0 "" M
%ln = aten::layer_norm(%in, [2]) in 0 at "m.py:1 layer_output = apply_chunking_to_forward("
%a = aten::exp(%ln) in 0 at "m.py:1 layer_output = apply_chunking_to_forward("
%b = aten::sin(%a) in 0 at "m.py:1 layer_output = apply_chunking_to_forward("
%out = aten::tanh(%b) in 0 at "m.py:2 return tanh(layer_output)"
return %out
)tape";
  CHECK(gone_after(from_text(text), "ln") == 2);
}

// transformers 5.23.0, models/rembert/modeling_rembert.py, RemBertEncoder:
//   hidden_states = self.embedding_hidden_mapping_in(hidden_states)
//   for layer_module in self.layer:
//       layer_outputs = layer_module(hidden_states, …)
//       hidden_states = layer_outputs[0]
TEST_CASE("a loop's turn lets go of what its argument's name held before") {
  const auto gone = [](const char* first, const char* inside) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 layer.0 Layer in 0 at "m.py:3 layer_outputs = layer_module("
scope 2 layer.1 Layer in 0 at "m.py:3 layer_outputs = layer_module("
%first = aten::relu(%in) in 0 at "m.py:1 )tape") +
                             first + R"tape("
%a = aten::exp(%first) in 1 at "l.py:1 )tape" +
                             inside + R"tape("
%b = aten::exp(%a) in 2 at "l.py:1 )tape" +
                             inside + R"tape("
%out = aten::tanh(%b) in 0 at "m.py:5 return tanh(y)"
return %out
)tape";
    return gone_after(from_text(text), "first");
  };
  CHECK(gone("hidden_states = relu(x)", "y = exp(hidden_states)") == 1);
  // "hidden_states = inputs_embeds" runs no op either: the first name still holds it.
  CHECK(gone("inputs_embeds = relu(x)", "y = exp(hidden_states)") == 3);
  CHECK(gone("states = relu(x)", "y = exp(hidden_states)") == 3);
  // transformers 5.23.0, models/openai/modeling_openai.py:386: the line that calls the module has the name.
  const std::string spoken = R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 h.0 Block in 0 at "m.py:3 outputs = block(hidden_states, mask)"
scope 2 h.1 Block in 0 at "m.py:3 outputs = block(hidden_states, mask)"
%first = aten::relu(%in) in 0 at "m.py:1 hidden_states = relu(x)"
%a = aten::exp(%first) in 1 at "l.py:1 y = exp(x)"
%b = aten::exp(%a) in 2 at "l.py:1 y = exp(x)"
%out = aten::tanh(%b) in 0 at "m.py:5 return tanh(y)"
return %out
)tape";
  CHECK(gone_after(from_text(spoken), "first") == 1);
  // One line that calls two modules is no loop.
  const std::string nested = R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 fc1 Layer in 0 at "m.py:2 y = self.fc2(self.fc1(x))"
scope 2 fc2 Layer in 0 at "m.py:2 y = self.fc2(self.fc1(x))"
%first = aten::relu(%in) in 0 at "m.py:1 x = relu(x)"
%a = aten::exp(%first) in 1 at "l.py:1 return exp(x)"
%b = aten::exp(%a) in 2 at "l.py:1 return exp(x)"
%out = aten::tanh(%b) in 0 at "m.py:5 return tanh(y)"
return %out
)tape";
  CHECK(gone_after(from_text(nested), "first") == 3);
}

// transformers 5.23.0, models/bloom/modeling_bloom.py: attention in lines of its own, and always returned.
TEST_CASE("attention weights that a class returns every time live under its callers' names") {
  const auto gone = [](const char* module) {
    const std::string text = std::string(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 attn )tape") + module +
                             R"tape( in 0 at "m.py:1 attn_outputs = self.attn(x)"
%weights = aten::softmax.int(%x, -1) in 1 at "a.py:1 attention_probs = F.softmax(scores, dim=-1)"
%flat = aten::view(%weights, [2]) in 1 at "a.py:2 attention_probs_reshaped = attention_probs.view(2)"
%product = aten::matmul(%flat, %x) in 1 at "a.py:3 context = attention_probs_reshaped @ value"
%out = aten::tanh(%product) in 0 at "m.py:2 return tanh(attn_outputs[0])"
return %out
)tape";
    return gone_after(from_text(text), "flat");
  };
  CHECK(gone("transformers.models.bloom.modeling_bloom.BloomAttention") == 3);
  CHECK(gone("transformers.models.xlm.modeling_xlm.MultiHeadAttention") == 2);  // only if it is asked to
}

TEST_CASE("a layer with which a norm was folded has its own place and line again") {
  const auto moved = [](const std::string& line) {
    Graph g;
    GraphNode node;
    node.op_type = "Conv";
    node.metadata["pkg.torch.onnx.name_scopes"] = "['', 'layer1', 'layer1.bn3', 'batch_norm']";
    node.metadata["pkg.torch.onnx.class_hierarchy"] =
        "['M', 'Block', 'torch.nn.modules.batchnorm.BatchNorm2d', 'aten.batch_norm.default']";
    node.metadata["pkg.torch.onnx.stack_trace"] =
        "File \"m.py\", line 7, in forward\n    " + line +
        "\n  File \"batchnorm.py\", line 9, in forward\n    return F.batch_norm(";
    g.nodes.push_back(node);
    onnx_format::move_home(g, 0, "layer1.conv3");
    const std::string& trace = g.nodes[0].metadata["pkg.torch.onnx.stack_trace"];
    const auto from = trace.find("    ") + 4;
    CHECK(g.nodes[0].metadata["pkg.torch.onnx.name_scopes"] == "['', 'layer1', 'layer1.conv3', 'batch_norm']");
    CHECK(g.nodes[0].metadata["pkg.torch.onnx.class_hierarchy"] ==
          "['M', 'Block', 'torch.nn.modules.conv.Conv2d', 'aten.batch_norm.default']");
    return trace.substr(from, trace.find('\n', from) - from);
  };
  CHECK(moved("x = self.bn3(x)") == "x = self.conv3(x)");
  CHECK(moved("out = self.bn3(y)") == "y = self.conv3(y)");
  CHECK(moved("out = self.bn3(self.conv3(y))") == "out = self.bn3(self.conv3(y))");
  CHECK(moved("input = module(input)") == "input = module(input)");
}

// transformers 5.23.0, models/mpt/modeling_mpt.py, MptModel: causal_mask = create_causal_mask(…).to(torch.bool)
TEST_CASE("the last line of a statement gives its names what it makes, and the first line's result goes") {
  const auto gone = [](const char* last) {
    const std::string text = std::string(R"tape(
input %x float32 [2]
scope 0 "" M
%mask = aten::relu(%x) in 0 at "m.py:3 mask = make_mask("
%bools = aten::exp(%mask) in 0 at ")tape") +
                             last + R"tape("
%y = aten::tanh(%bools) in 0 at "m.py:9 y = tanh(mask)"
%z = aten::sigmoid(%y) in 0 at "m.py:10 return sigmoid(y)"
return %z
)tape";
    const Tape tape = from_text(text);
    return std::pair(gone_after(tape, "mask"), gone_after(tape, "bools"));
  };
  CHECK(gone("m.py:6 ).to(torch.bool)") == std::pair(1, 3));  // `mask` holds %bools until the frame returns
  CHECK(gone("m.py:6 bools = exp(mask)") == std::pair(3, 3));
  CHECK(gone("other.py:6 ).to(torch.bool)") == std::pair(3, 2));  // of another file: no part of it
}

// transformers 5.23.0, models/big_bird/modeling_big_bird.py: BigBirdAttention calls its attention `self.self`, and
// torch.export names no class of it.
TEST_CASE("a module without a class is one of the classes in the file of its lines") {
  const auto gone = [](const char* file) {
    const std::string text = std::string(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 attention.self "" in 0 at "m.py:1 output, weights = self.self("
%weights = aten::softmax.int(%x, -1) in 1 at ")tape") +
                             file + R"tape(:195 attention_probs = softmax(scores, dim=-1)"
%product = aten::matmul(%weights, %x) in 1 at "a.py:201 context = torch.matmul(attention_probs, value)"
%out = aten::tanh(%product) in 0 at "m.py:2 return tanh(output)"
return %out
)tape";
    return gone_after(from_text(text), "weights");
  };
  CHECK(gone("transformers/models/big_bird/modeling_big_bird.py") == 2);
  CHECK(gone("own/attention.py") == 1);
}

// own code: z, _ = self.read(query, x, x), with nn.MultiheadAttention
TEST_CASE("the mean of nn.MultiheadAttention's weights lives under its caller's second name") {
  const auto gone = [](const char* line) {
    const std::string text = std::string(R"tape(
input %x float32 [2, 2]
scope 0 "" M
scope 1 read torch.nn.modules.activation.MultiheadAttention in 0 at "m.py:1 )tape") +
                             line + R"tape("
%product = aten::tanh(%x) in 1 at "activation.py:1490 attn_output, attn_output_weights = F.multi_head_attention_forward("
%mean = aten::mean.dim(%x, [0]) in 1 at "activation.py:1490 attn_output, attn_output_weights = F.multi_head_attention_forward("
%out = aten::tanh(%product) in 0 at "m.py:2 z = tanh(z)"
%end = aten::exp(%out) in 0 at "m.py:3 return exp(z)"
return %end
)tape";
    return gone_after(from_text(text), "mean");
  };
  CHECK(gone("z, _ = self.read(x, x, x)") == 3);
  CHECK(gone("z = self.read(x, x, x)[0]") == 1);
}

// transformers 5.23.0, models/gemma2/modeling_gemma2.py:430:
//   causal_mask_mapping = {
//       "full_attention": create_causal_mask(**mask_kwargs),
//       "sliding_attention": create_sliding_window_causal_mask(**mask_kwargs),
//   }
TEST_CASE("a dict that is written over several lines holds its entries until the frame returns") {
  const auto gone = [](const char* line, const char* read) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
%lower = aten::exp(%in) in 0 at "m.py:2 )tape") +
                             line + R"tape("
%mask = aten::relu(%lower) in 0 at "m.py:2 )tape" +
                             line + R"tape("
%unread = aten::neg(%in) in 0 at "m.py:3 'sliding': make(x),"
%x = aten::exp(%mask) in 0 at "m.py:5 )tape" +
                             read + R"tape("
%y = aten::exp(%x) in 0 at "m.py:6 y = exp(x)"
%out = aten::tanh(%y) in 0 at "m.py:7 return tanh(y)"
return %out
)tape";
    const Tape tape = from_text(text);
    return std::tuple(gone_after(tape, "lower"), gone_after(tape, "mask"), gone_after(tape, "unread"));
  };
  CHECK(gone(R"(\"full\": make(x),)", "x = exp(masks[kind])") == std::tuple(1, 5, 2));
  CHECK(gone("exp(make(x)),", "x = exp(0)") == std::tuple(1, 3, 2));
}

// own code (DCCRN, U-Nets): `encoder_out.append(out)` runs no op; `out = join([out, encoder_out[-1 - i]], 1)` does
TEST_CASE("a list that a line takes members of holds them until the frame returns") {
  const auto gone = [](const char* read) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
%first = aten::relu(%in) in 0 at "m.py:2 out = relu(out)"
%second = aten::exp(%first) in 0 at "m.py:3 out = exp(out)"
%joined = aten::add.Tensor(%second, %first) in 0 at "m.py:5 )tape") +
                             read + R"tape("
%y = aten::tanh(%joined) in 0 at "m.py:6 y = tanh(out)"
%out = aten::tanh(%y) in 0 at "m.py:7 return tanh(y)"
return %out
)tape";
    return gone_after(from_text(text), "first");
  };
  CHECK(gone("out = out + outs[-1 - i]") == 4);
  CHECK(gone("out = out + outs.pop()") == 2);
  CHECK(gone("out = out + 2 * out") == 2);
}

// own code (bi-encoders): `states.append(x)` in a loop, then `x = (states[0] + states[-1]) / 2`
TEST_CASE("a list whose first and last members a line takes has what the turns between made") {
  const auto gone = [](const char* read) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
%first = aten::relu(%in) in 0 at "m.py:2 x = relu(x)"
%second = aten::relu(%first) in 0 at "m.py:2 x = relu(x)"
%third = aten::relu(%second) in 0 at "m.py:2 x = relu(x)"
%sum = aten::add.Tensor(%first, %third) in 0 at "m.py:3 )tape") +
                             read + R"tape("
%y = aten::tanh(%sum) in 0 at "m.py:4 y = tanh(x)"
%out = aten::tanh(%y) in 0 at "m.py:5 return tanh(y)"
return %out
)tape";
    return gone_after(from_text(text), "second");
  };
  CHECK(gone("x = states[0] + states[-1]") == 5);
  CHECK(gone("x = first + last") == 2);
}

// own code (U-Nets of two classes): `x, skips = self.encoder(x)`, `x = self.decoder(x, skips)`
TEST_CASE("what a module pops of its caller's list goes with the line that popped it") {
  const auto gone = [](const char* encoder, const char* read) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 encoder Encoder in 0 at "m.py:1 )tape") +
                             encoder + R"tape("
scope 2 decoder Decoder in 0 at "m.py:2 x = self.decoder(x, skips)"
%skip = aten::relu(%in) in 1 at "e.py:1 x = relu(x)"
%deep = aten::exp(%skip) in 1 at "e.py:2 x = exp(x)"
%c = aten::tanh(%deep) in 2 at "d.py:1 x = tanh(x)"
%d = aten::add.Tensor(%c, %skip) in 2 at "d.py:2 x = x + )tape" +
                             read + R"tape("
%e = aten::tanh(%d) in 2 at "d.py:3 x = tanh(x)"
%f = aten::exp(%e) in 2 at "d.py:4 return exp(x)"
%g = aten::exp(%f) in 0 at "m.py:3 x = exp(x)"
%out = aten::tanh(%g) in 0 at "m.py:4 return tanh(x)"
return %out
)tape";
    return gone_after(from_text(text), "skip");
  };
  CHECK(gone("x, skips = self.encoder(x)", "skips.pop()") == 3);
  CHECK(gone("skips = self.encoder(x)", "skips.pop()") == 3);
  CHECK(gone("x, skips = self.encoder(x)", "skips[0]") > 3);
}

// transformers 5.23.0, models/flaubert/modeling_flaubert.py:141, cache_utils.py (DynamicLayer.update): the cache is a
// local name of the model's, and what it hands back is in it.
TEST_CASE("a cache of keys and values holds them until the frame that sees all its users returns") {
  const auto text = [](const char* update) {
    return std::string(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 attn.0 Attention in 0 at "m.py:3 h = attn(h, cache)"
scope 2 attn.1 Attention in 0 at "m.py:3 h = attn(h, cache)"
%k = aten::exp(%in) in 1 at "a.py:1 k = exp(x)"
%none = aten::empty.memory_format([0], dtype=float32) in 1 at "a.py:2 )tape") +
           update + R"tape("
%first = aten::cat([%none, %k], 0) in 1 at "a.py:2 )tape" +
           update + R"tape("
%a = aten::relu(%first) in 1 at "a.py:3 return relu(k)"
%k2 = aten::exp(%a) in 2 at "a.py:1 k = exp(x)"
%none2 = aten::empty.memory_format([0], dtype=float32) in 2 at "a.py:2 )tape" +
           update + R"tape("
%second = aten::cat([%none2, %k2], 0) in 2 at "a.py:2 )tape" +
           update + R"tape("
%b = aten::relu(%second) in 2 at "a.py:3 return relu(k)"
%out = aten::tanh(%b) in 0 at "m.py:5 return tanh(h)"
return %out
)tape";
  };
  CHECK(gone_after(from_text(text("k, v = cache.update(k, v, self.layer)")), "first") == 8);
  CHECK(gone_after(from_text(text("k, v = join(k, v)")), "first") == 3);
  Tape tape = from_text(text("k, v = cache.update(k, v, self.layer)"));
  bind_names(tape);
  begin_caches_like_keys(tape);
  check(tape);
  // Of the keys' dtype, which autocast changes.
  CHECK(tape.calls[1].op == "aten::new_empty");
  CHECK(std::get<ValueId>(tape.calls[1].args[0].value) == tape.calls[0].outputs[0]);
}

// timm 1.0, models/metaformer.py:423:
//   x = self.res_scale2(x) + \ …
//       self.mlp(x)
TEST_CASE("a sum over several lines binds its name once it is made") {
  const auto gone = [](const char* end) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 scale Scale in 0 at "m.py:2 x = self.scale(x))tape") +
                             end + R"tape("
scope 2 mlp Mlp in 0 at "m.py:3 self.mlp(x)"
%x = aten::exp(%in) in 0 at "m.py:1 x = exp(x)"
%a = aten::relu(%x) in 1 at "s.py:1 return relu(x)"
%b = aten::relu(%x) in 2 at "s.py:1 return relu(x)"
%c = aten::neg(%b) in 2 at "s.py:2 return neg(x)"
%sum = aten::add.Tensor(%a, %c) in 0 at "m.py:2 x = self.scale(x))tape" +
                             end + R"tape("
%out = aten::tanh(%sum) in 0 at "m.py:4 return tanh(x)"
return %out
)tape";
    return gone_after(from_text(text), "x");
  };
  CHECK(gone(" + \\\\") == 4);
  CHECK(gone("") == 3);  // two statements, of which the first has bound `x` anew
}

// transformers 5.23.0, models/layoutlm/modeling_layoutlm.py:520: in the output that the model returns.
TEST_CASE("what a pooler makes lives under the name of its model's caller, if nobody reads it, too") {
  const auto gone = [](const char* model) {
    const std::string text = std::string(R"tape(
input %in float32 [2]
scope 0 "" Head
scope 1 body transformers.models.x.modeling_x.)tape") +
                             model + R"tape( in 0 at "m.py:1 outputs = self.body(x)"
scope 2 body.pooler Pooler in 1 at "b.py:2 pooled = self.pooler(x)"
%x = aten::exp(%in) in 1 at "b.py:1 x = exp(x)"
%pooled = aten::relu(%x) in 2 at "p.py:1 return relu(x)"
%y = aten::neg(%x) in 0 at "m.py:2 y = neg(outputs[0])"
%out = aten::tanh(%y) in 0 at "m.py:3 return tanh(y)"
return %out
)tape";
    return gone_after(from_text(text), "pooled");
  };
  CHECK(gone("XModel") == 3);
  CHECK(gone("XEncoder") == 1);
}

TEST_CASE("a module's own frame goes before the arguments that its caller holds") {
  Tape tape = from_text(R"tape(
input %in float32 [2]
scope 0 "" M
scope 1 mixer Mixer in 0 at "m.py:2 y = self.mixer(exp(x))"
%argument = aten::exp(%in) in 0 at "m.py:2 y = self.mixer(exp(x))"
%inside = aten::relu(%argument) in 1 at "s.py:1 x = relu(x)"
%y = aten::neg(%inside) in 1 at "s.py:2 return neg(x)"
%out = aten::tanh(%y) in 0 at "m.py:3 return tanh(y)"
return %out
)tape");
  bind_names(tape);
  mark_last_uses(tape);
  CHECK(tape.calls[2].last_uses == std::vector{tape.calls[1].outputs[0], tape.calls[0].outputs[0]});
}

// transformers 5.23.0, models/mixtral/modeling_mixtral.py:110: return router_logits, router_scores, router_indices
TEST_CASE("a router's logits live under the first name of its caller's line") {
  const auto gone = [](const char* module) {
    const std::string text = std::string(R"tape(
input %in float32 [2, 2]
scope 0 "" M
scope 1 gate transformers.models.mixtral.modeling_mixtral.)tape") +
                             module + R"tape( in 0 at "m.py:1 _, weights, experts = self.gate(x)"
%logits = aten::linear(%in, %in) in 1 at "g.py:1 router_logits = F.linear(x, self.weight)"
%weights = aten::exp(%logits) in 1 at "g.py:2 router_scores = exp(router_logits)"
%y = aten::neg(%weights) in 0 at "m.py:2 y = neg(weights)"
%out = aten::tanh(%y) in 0 at "m.py:3 return tanh(y)"
return %out
)tape";
    return gone_after(from_text(text), "logits");
  };
  CHECK(gone("MixtralTopKRouter") == 3);
  CHECK(gone("MixtralExperts") == 1);
}

// torch 2.11.0, torch/nn/functional.py:6632, multi_head_attention_forward: `q_scaled = q * …` leaves q to its name.
TEST_CASE("what F.multi_head_attention_forward calls q, k and v lives until it returns") {
  const auto gone = [](const std::string& line, const char* name) {
    const std::string at = " in 1 at \"activation.py:1490 " + line + "\"\n";
    return gone_after(
        from_text("input %x float32 [2, 2]\ninput %k float32 [2, 2]\nscope 0 \"\" M\n"
                  "scope 1 read torch.nn.modules.activation.MultiheadAttention in 0 at \"m.py:1 z = "
                  "self.read(x, k, k)[0]\"\n%q = aten::linear(%x, %x)" +
                  at + "%key = aten::exp(%k)" + at + "%scaled = aten::mul.Tensor(%q, 0.5)" + at +
                  "%turned = aten::transpose.int(%key, 0, 1)" + at + "%scores = aten::bmm(%scaled, %turned)" + at +
                  "%w = aten::softmax.int(%scores, -1)" + at + "%out = aten::tanh(%w)" + at +
                  "%end = aten::exp(%out) in 0 at \"m.py:2 return z.exp()\"\nreturn %end\n"),
        name);
  };
  const std::string attention = "attn_output, attn_output_weights = F.multi_head_attention_forward(";
  CHECK(gone(attention, "q") == 6);
  CHECK(gone(attention, "turned") == 6);
  CHECK(gone("attn_output, attn_output_weights = own_attention(", "q") == 2);
}
