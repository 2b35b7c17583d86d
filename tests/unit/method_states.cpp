// State that methods put into attributes, and names that lines with several calls of several results bind.
#include "estimators/restore/method_states.h"

#include <doctest/doctest.h>

#include <string>

#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/tape/tape_text.h"
#include "lives.h"

using namespace memplan;
using memplan::test::gone_after;

namespace {

/// A frame whose second line is `line`, in place `number` of the file; the third reads what it made, and `memory`
/// again.
Tape stateful(const std::string& line, int number, const std::string& child = "cell") {
  Tape tape = from_text(R"tape(
input %in float32 [4, 8]
scope 0 "" M
scope 1 decoder D in 0 at "m.py:40 return self.decoder(x)"
scope 2 decoder.)tape" + child +
                        R"tape( C in 1 at "m.py:9 y = self.cell(y)"
%memory = aten::relu(%in) in 1 shapes(float32 [4, 8]) at "m.py:4 memory = relu(x)"
%state = aten::exp(%memory) in 1 shapes(float32 [4, 8]) at "m.py:)tape" +
                        std::to_string(number) + " " + line + R"tape("
%y = aten::add.Tensor(%memory, %state) in 1 shapes(float32 [4, 8]) at "m.py:8 y = self.step(x)"
%z = aten::cos(%y) in 2 shapes(float32 [4, 8]) at "c.py:3 return x.cos()"
%last = aten::tanh(%z) in 1 shapes(float32 [4, 8]) at "m.py:10 return y.tanh()"
return %last
)tape");
  bind_names(tape);
  mark_last_uses(tape);
  return tape;
}

bool stays(const Tape& tape) {
  for (const TapeValue& v : tape.values)
    if (v.name == "state") return v.in_attribute;
  return false;
}

}  // namespace

// NVIDIA's tacotron2, model.py: self.initialize_decoder_states(memory, mask=...) sets self.processed_memory, which
// self.decode(x) reads.
TEST_CASE("what a statement of a method's makes for other lines is in attributes until the next pass") {
  CHECK(stays(stateful("self.reset(memory)", 6)));
  CHECK(stays(stateful("self.reset(", 6)));
  CHECK_FALSE(stays(stateful("state = self.reset(memory)", 6)));
  CHECK_FALSE(stays(stateful("return self.reset(memory)", 6)));
  CHECK_FALSE(stays(stateful("self.reset(memory) * 2", 6)));
  CHECK_FALSE(stays(stateful("self.reset(memory)", 9)));   // the line above goes on: it is that one's argument
  CHECK_FALSE(stays(stateful("self.cell(memory)", 6)));    // a module gives its result to a line
  CHECK_FALSE(stays(stateful("self.reset(memory))", 6)));  // the end of a longer call
  CHECK(bytes_of_method_states(stateful("self.reset(memory)", 6)) == Bytes(2 * 4 * 8 * 4));  // and `memory`
  CHECK(bytes_of_method_states(stateful("state = self.reset(memory)", 6)) == Bytes());
}

TEST_CASE("the last call of a line with several names gives them all") {
  const auto gone = [](const std::string& line, const char* value) {
    const std::string text = R"tape(
input %in float32 [4, 8]
scope 0 "" M
%best, %at = aten::topk(%in, 2) in 0 at "m.py:1 )tape" +
                             line + R"tape("
%mean = aten::mean.dim(%best, [-1]) in 0 at "m.py:1 )tape" +
                             line + R"tape("
%first, %second = aten::topk(%mean, 1) in 0 at "m.py:1 )tape" +
                             line + R"tape("
%a = aten::exp(%second) in 0 at "m.py:2 a = exp(chosen)"
%_b = aten::cos(%a) in 0 at "m.py:3 _ = cos(a)"
%last = aten::tanh(%a) in 0 at "m.py:4 return tanh(a)"
return %last
)tape";
    return gone_after(from_text(text), value);
  };
  const std::string line = "_, chosen = x.topk(2)[0].mean(-1).topk(1)";
  CHECK(gone(line, "at") == 0);
  CHECK(gone(line, "first") == 4);   // until `_` is bound again
  CHECK(gone(line, "second") == 5);  // `chosen`, to the end
  CHECK(gone("chosen = x.topk(2)[0].mean(-1).topk(1)[1]", "first") == 2);
}
