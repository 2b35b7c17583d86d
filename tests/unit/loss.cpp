// Which output of a model the loss of the reference program is taken of.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

/// Whether the first step brings a target for its loss, where the model returns what `lines` make.
bool brings_target(const std::string& lines, Loss loss = Loss::automatic) {
  const Tape tape = from_text(
      "parameter %w float32 [16, 8]\nparameter %v float32 [4, 16]\ninput %x float32 [32, 8]\nscope 0 \"\" M\n"
      "%h = aten::linear(%x, %w) in 0\n%y = aten::linear(%h, %v) in 0\n%p = aten::mean(%h) in 0\n"
      "%l = aten::mean(%y) in 0\n%d = aten::detach(%l) in 0\n" +
      lines + "\n");
  TrainingSetup setup;
  setup.steps = 1;
  setup.loss = loss;
  const Schedule s = unwrap(run_steps(tape, setup, choose_device("h100-80gb").device));
  return std::ranges::any_of(s.allocations, [&](const Allocation& a) {
    return a.label >= 0 && s.names[static_cast<std::size_t>(a.label)] == "target";
  });
}

}  // namespace

TEST_CASE("a scalar behind the prediction is the loss where it trains all that the prediction trains") {
  CHECK(brings_target("return %y"));
  CHECK_FALSE(brings_target("return %l"));
  CHECK_FALSE(brings_target("return %y, %l"));
  CHECK_FALSE(brings_target("return %y, %d, %l"));
  CHECK(brings_target("return %y, %d"));  // nothing is trained by it
  CHECK(brings_target("return %y, %p"));  // the second product is not trained by it
  CHECK_FALSE(brings_target("return %p, %y"));
  CHECK(brings_target("return %y, %l", Loss::cross_entropy));  // asked for
}
