// What views of parameters are under torch.no_grad().
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

/// What the first inference asks for beside its input, and gives back.
std::string events_of(const char* weight) {
  const Tape tape = from_text(std::string(R"tape(
parameter %w float32 [384, 128]
parameter %b float32 [384]
buffer %fixed float32 [256, 128]
buffer %offset float32 [256]
input %x float32 [32, 300, 128]
scope 0 "" M
%q, %k = aten::split_with_sizes(%w, [128, 256]) in 0
%p, %o = aten::split_with_sizes(%b, [128, 256]) in 0
%turned = aten::transpose.int(%x, 0, 1) in 0
%y = aten::linear(%turned, )tape") +
                              weight + ") in 0 del(%turned)\nreturn %y\n");
  TrainingSetup setup;
  setup.mode = Mode::inference;
  setup.steps = 1;
  const Schedule s = unwrap(run_steps(tape, setup, choose_device("h100-80gb").device));
  std::string out;
  for (std::size_t i = static_cast<std::size_t>(s.step_begins[0]); i < s.events.size(); ++i) {
    const Allocation& a = s.allocations[static_cast<std::size_t>(s.events[i].allocation)];
    if (a.category == Category::workspace || a.category == Category::input) continue;
    out += (s.events[i].kind == Event::Kind::alloc ? "+" : "-") + std::to_string(a.size.count) + " ";
  }
  return out;
}

}  // namespace

// PyTorch 2.11 on the emulated H100: x = torch.empty(32, 300, 128), w and b split from parameters of 384,
// F.linear(x.transpose(0, 1), w, b) under no_grad, by torch.cuda.memory._snapshot().
TEST_CASE("a product with a view of a parameter is one of matrices without gradients, too") {
  CHECK(events_of("%k, %o") == "+4915200 +9830400 -4915200 ");
  CHECK(events_of("%fixed, %offset") == "+9830400 ");
}
