// nn.MultiheadAttention gives the mean of its weights, which files of optimizers have not.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "estimators/restore/passes.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

/// One layer with 2 heads over 3 positions of a batch of 4, whose last steps are `end`.
Tape layer(const std::string& end, const char* kind = "torch.nn.modules.activation.MultiheadAttention") {
  return from_text(std::string(R"tape(
input %scores float32 [8, 3, 3]
input %values float32 [8, 3, 5]
parameter %w float32 [10, 10]
scope 0 "" M
scope 1 attn )tape") +
                   kind + R"tape( in 0 at "m.py:1 x, _ = self.attn(x, x, x)"
%softmax = aten::softmax.int(%scores, -1) in 1 shapes(float32 [8, 3, 3])
%bmm = aten::bmm(%softmax, %values) in 1 shapes(float32 [8, 3, 5])
%turned = aten::transpose.int(%bmm, 0, 1) in 1 shapes(float32 [3, 8, 5])
%rows = aten::reshape(%turned, [12, 10]) in 1 shapes(float32 [12, 10])
%linear = aten::linear(%rows, %w) in 1 shapes(float32 [12, 10])
%out = aten::reshape(%linear, [3, 4, 10]) in 1 shapes(float32 [3, 4, 10])
)tape" + end + "return %out\n");
}

std::ptrdiff_t means(Tape tape) {
  average_weights(tape);
  check(tape, "test", "weights of attention");
  return std::ranges::count_if(tape.calls, [](const Call& c) { return c.op == "aten::mean.dim"; });
}

}  // namespace

// torch/nn/functional.py of PyTorch 2.11, multi_head_attention_forward: weights.view(bsz, heads, tgt, src).mean(dim=1).
TEST_CASE("attention that computes its weights averages them, unless the file has it or another class does") {
  Tape tape = layer("");
  average_weights(tape);
  REQUIRE(tape.calls.size() == 8);
  CHECK(tape.calls[7].op == "aten::mean.dim");
  CHECK(tape.calls[7].known_shapes[0].second == std::vector<std::int64_t>{4, 3, 3});
  CHECK(tape.calls[7].scope == tape.calls[5].scope);
  CHECK(means(layer("")) == 1);
  CHECK(means(layer("%mean = aten::mean.dim(%softmax, [1]) in 1 shapes(float32 [8, 3])\n")) == 1);
  CHECK(means(layer("", "m.Attention")) == 0);
}
