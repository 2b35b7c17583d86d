#include "estimators/restore/training_draws.h"

#include <doctest/doctest.h>

#include <string>

#include "estimators/restore/passes.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

/// Masking of features as SpecAugment does it, and `other` in the place of the tensor that the mask meets.
std::string masked(const std::string& other, const std::string& sizes) {
  return R"(input %x float32 [8, 120, 80]
parameter %w float32 [80]
%draw = aten::randint.low(0, 70, [8, 1]) shapes(int64 [8, 1])
%at = aten::arange(80) shapes(int64 [80])
%ge = aten::ge.Tensor(%at, %draw) shapes(bool [8, 80])
%mask = aten::unsqueeze(%ge, 1) shapes(bool [8, 1, 80])
%y = aten::mul.Tensor(%)" +
         other + ", %mask) shapes(float32 " + sizes + ")\n%z = aten::relu(%y) shapes(float32 " + sizes +
         ")\nreturn %z\n";
}

Tape read(const std::string& text, bool in_training, bool draws) {
  Tape tape = from_text(text);
  tape.exported.in_training = in_training;
  tape.reading.training_draws = draws;
  read_training_draws(tape);
  remove_dead_calls(tape);
  check(tape);
  return tape;
}

}  // namespace

TEST_CASE("in inference a model may leave out what it draws in training") {
  const std::string text = masked("x", "[8, 120, 80]");
  CHECK(has_training_draws(read(text, true, true)));
  CHECK(read(text, true, true).calls.size() == 6);
  CHECK(read(text, true, true).notes.size() == 1);
  const Tape left = read(text, true, false);
  REQUIRE(left.calls.size() == 1);
  CHECK(left.calls[0].op == "aten::relu");
}

TEST_CASE("draws of a file that was exported in evaluation mode, and those that change sizes, stay") {
  const std::string text = masked("x", "[8, 120, 80]");
  CHECK_FALSE(has_training_draws(read(text, false, true)));
  CHECK(read(text, false, false).calls.size() == 6);
  CHECK(read(text, false, true).notes.empty());
  CHECK(read(masked("w", "[8, 1, 80]"), true, false).calls.size() == 6);
}
