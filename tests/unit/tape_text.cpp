// The text form of tapes: read back, it is the tape.
#include "estimators/tape/tape_text.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/tape/tape_json.h"

using namespace memplan;

namespace {

void same_again(const Tape& tape) {
  const std::string text = to_text(tape);
  const Tape again = from_text(text);
  CHECK(to_json(again) == to_json(tape));
  CHECK(to_text(again) == text);
  REQUIRE(again.bindings.size() == tape.bindings.size());
  for (std::size_t i = 0; i < tape.bindings.size(); ++i) {
    CHECK(again.bindings[i].targets == tape.bindings[i].targets);
    CHECK(again.bindings[i].held == tape.bindings[i].held);
  }
}

/// Every open dimension but the batch is 32.
TrainingSetup setup_for(const Model& model) {
  TrainingSetup setup;
  for (const auto& dim : open_dims(model.graphs.front()))
    if (!dim.batch) setup.dims[dim.name] = 32;
  return setup;
}

std::string error_of(std::string_view text) {
  try {
    from_text(text);
  } catch (const Failure& f) {
    return f.error().what;
  }
  return "none";
}

}  // namespace

TEST_CASE("tapes of the zoo come back from their text") {
  for (const char* name : {"mlp.onnx", "resnet18.onnx", "gpt2.onnx", "llama-tiny.onnx", "moe_lm.onnx", "lstm_lm.onnx",
                           "legacy/gpt2.onnx", "pt2/llama-tiny.pt2", "pt2/unet.pt2", "pt2/t5-small.pt2"}) {
    CAPTURE(name);
    const Model model = unwrap(load_model(std::string(MEMPLAN_SOURCE_DIR) + "/data/models/" + name));
    TrainingSetup setup = setup_for(model);
    same_again(unwrap(tape_of(model, setup)));
    setup.precision = Precision::bf16;
    setup.mode = Mode::inference;
    same_again(unwrap(tape_of(model, setup)));
  }
}

TEST_CASE("what transforms do comes back from the text") {
  const Model model = unwrap(load_model(std::string(MEMPLAN_SOURCE_DIR) + "/data/models/gpt2.onnx"));
  TrainingSetup setup = setup_for(model);
  setup.checkpoint = {"groups:4/blocks"};
  same_again(unwrap(tape_of(model, setup)));
  setup.checkpoint.clear();
  setup.lora.emplace();
  setup.lora->quantized = true;
  same_again(unwrap(tape_of(model, setup)));
  setup.lora.reset();
  setup.parallel.tensor = 2;
  same_again(unwrap(tape_of(model, setup)));
}

TEST_CASE("every form of argument comes back") {
  same_again(from_text(R"tape(
# a comment
dim batch 3 assumed
in_place
in_place_module layer1.0.relu
input %x float32 [2, 3] number 5 host
parameter %w float16 [3] frozen tied %v keeps_dtype
parameter %v float16 [3]
input %late int64 [] unlisted
constant %_4:"a name with blanks" float32 []
binding 0 {a} {q k} calls_local makes_list collects outs pops(skips) held(aten::cat)
scope 0 "" M
scope 1 "a b" N in 0 call 2 by 0 at "m.py:1 a = \"b\""
%y@9, _, %z@7 = aten::op(%x, None, 3, -2.5, 1e-05, 2.0, inf, -inf, True, "text", float32, [%w, [1, None]], alpha=%x) in 1 by 0 no_autocast unknown shapes(float32 [2, 3], int64 []) releases(%x) del(%w %x) at "a.py:3 text"
= aten::nothing()
computed %_5@5:"" float32 []
computed %_6:"" float32 []
computed %_8@8:"" float32 []
about %y float16 [4]
checkpoint 0 1 in 1 others(0 1)
return %y, _
recovered 3 aten::layer_norm "ReduceMean/Sub of it" "proven by the file" op
note MP002 "said so" assumed shape "" layer1 2
)tape"));
}

TEST_CASE("errors in a tape's text name the line") {
  CHECK(error_of("input %x float32 [2]\n%y = aten::relu(%z)") == "line 2 of a tape: no line before it makes '%z'");
  CHECK(error_of("input %x float33 [2]") == "line 1 of a tape: unknown dtype 'float33'");
  CHECK(error_of("input %x float32 [2]\ninput %x float32 [2]") == "line 2 of a tape: '%x' is made twice");
  CHECK(error_of("\nscope 1 a B") == "line 2 of a tape: scopes are numbered in order");
  CHECK(error_of("%y = aten::relu(3") == "line 1 of a tape: expected ',' at its end");
  CHECK(error_of("%y = aten::relu(3) nonsense") == "line 1 of a tape: more than one thing on it");
  CHECK(error_of("= aten::f(\"x)") == "line 1 of a tape: a string does not end");
  CHECK(error_of("input %x@2 float32 [2]") == "a tape has no value 0");
}
