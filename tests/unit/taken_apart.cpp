// Ops that exporters take apart, and lines whose Python does more than their text shows.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"
#include "estimators/tape/uses.h"
#include "lives.h"

using namespace memplan;

namespace {

using Ops = std::vector<std::string>;

Tape whole(const std::string& calls, Mode mode = Mode::training) {
  Tape tape = from_text("input %x float32 [2, 4]\ninput %y float32 [2, 4]\nscope 0 \"\" M\n" + calls);
  TrainingSetup setup;
  setup.mode = mode;
  recover_whole_ops(tape, setup);
  check(tape);
  return tape;
}

Ops ops_of(const Tape& tape) {
  Ops ops;
  for (const Call& c : tape.calls) ops.push_back(c.op);
  return ops;
}

std::string name_of(const Tape& tape, ValueId id) { return tape.values[static_cast<std::size_t>(id.index)].name; }

int gone_in(const std::string& calls, std::string_view name) {
  return memplan::test::gone_after(from_text("input %x float32 [2, 4]\nscope 0 \"\" M\n" + calls), name);
}

}  // namespace

TEST_CASE("a standard deviation that only nodes tell keeps its dimensions by a reshape and an expand") {
  const auto ops = [](const std::string& line) {
    const std::string at = " in 0 at \"m.py:1 y = " + line + "\"\n";
    return ops_of(whole("%var = aten::var.correction(%x, [1], correction=1.0, keepdim=False)" + at +
                        "%shaped = aten::reshape(%var, [2, 1])" + at + "%kept = aten::expand(%shaped, [2, 1])" + at +
                        "%root = aten::sqrt(%kept)" + at + "return %root\n"));
  };
  CHECK(ops("x.std(-1, keepdim=True)") == Ops{"aten::std.correction"});
  CHECK(ops("x.var(-1, keepdim=True).sqrt()").size() == 4);
}

TEST_CASE("a variance that the exporter took apart is one op, and a standard deviation where its line says so") {
  for (const auto& [line, root, op] : {std::tuple{"x.std(-1, keepdim=True)", true, "aten::std.correction"},
                                       std::tuple{"x.var(-1, keepdim=True).sqrt()", true, "aten::var.correction"},
                                       std::tuple{"x.var(-1)", false, "aten::var.correction"}}) {
    const std::string at = std::string(" in 0 at \"m.py:1 y = ") + line + "\"\n";
    const Tape tape = whole("%var = prims::var(%x, [1], 1.0)" + at +
                            (root ? "%kept = prims::broadcast_in_dim(%var, [2, 1], [0])" + at +
                                        "%root = aten::sqrt(%kept)" + at + "return %root\n"
                                  : "return %var\n"));
    REQUIRE(!tape.calls.empty());
    const Call& call = tape.calls[0];
    CHECK(call.op == op);
    CHECK(tape.calls.size() == (root && call.op == "aten::var.correction" ? 2 : 1));
    CHECK(name_of(tape, call.outputs[0]) == (call.op == "aten::std.correction" ? "root" : root ? "kept" : "var"));
    REQUIRE(call.kwargs.size() == 2);
    CHECK(std::get<bool>(call.kwargs[1].second.value) == root);  // keepdim
  }
}

TEST_CASE("numbers put in the place of NaN are one op") {
  const std::string at = " in 0 at \"m.py:1 y = torch.nan_to_num(x)\"\n";
  const std::string first = "%a = aten::isnan(%x)" + at + "%b = aten::where.ScalarSelf(%a, 0.0, %x)" + at;
  const std::string last = "%d = aten::where.ScalarSelf(%c, -1.0, %b)" + at + "%e = aten::isposinf(%x)" + at +
                           "%f = aten::where.ScalarSelf(%e, 1.0, %d)" + at + "return %f\n";
  const Tape tape = whole(first + "%c = aten::isneginf(%x)" + at + last);
  CHECK(ops_of(tape) == Ops{"aten::nan_to_num"});
  CHECK(name_of(tape, tape.calls[0].outputs[0]) == "f");
  CHECK(whole(first + "%c = aten::isneginf(%y)" + at + last).calls.size() == 6);  // of another tensor
}

TEST_CASE("a cosine similarity is one op, of one tensor or of two") {
  const std::string at = " in 0 at \"m.py:1 y = F.cosine_similarity(x, y, dim=-1)\"\n";
  const std::string rest = "%c = aten::clamp(%a, 0.00000001, None)" + at + "%e = aten::div.Tensor(%x, %c)" + at +
                           "%f = aten::mul.Tensor(%e, %e)" + at + "%g = aten::sum.dim_IntList(%f, [-1])" + at +
                           "return %g\n";
  const Tape one = whole("%a = aten::linalg_vector_norm(%x, 2, [-1], True)" + at + rest);
  REQUIRE(ops_of(one) == Ops{"aten::cosine_similarity"});
  CHECK(value_at(one.calls[0], 0) == value_at(one.calls[0], 1));
  const Tape two = whole("%a = aten::linalg_vector_norm(%x, 2, [-1], True)" + at +
                         "%b = aten::linalg_vector_norm(%y, 2, [-1], True)" + at + rest);
  REQUIRE(ops_of(two) == Ops{"aten::cosine_similarity"});
  CHECK(name_of(two, value_at(two.calls[0], 1)) == "y");
}

// `stats(a)` of a program's own, whose line says nothing.
TEST_CASE("a cosine similarity is known by its bound where no line tells it, and F.normalize is none") {
  const std::string at = " in 0 at \"m.py:1 y = self.criterion(x, y)\"\n";
  const auto ops = [&](const std::string& bound) {
    return ops_of(whole(
        "%a = aten::linalg_vector_norm(%x, 2, [-1], True)" + at + "%b = aten::linalg_vector_norm(%y, 2, [-1], True)" +
        at + "%c = aten::clamp(%a, " + bound + ", None)" + at + "%d = aten::clamp(%b, " + bound + ", None)" + at +
        "%e = aten::div.Tensor(%y, %d)" + at + "%f = aten::div.Tensor(%x, %c)" + at + "%g = aten::mul.Tensor(%f, %e)" +
        at + "%h = aten::sum.dim_IntList(%g, [-1])" + at + "return %h\n"));
  };
  CHECK(ops("0.00000000999999993922529") == Ops{"aten::cosine_similarity"});
  CHECK(ops("0.000000000001").size() == 8);
}

// torch/_refs/nn/functional/__init__.py: smooth_l1_loss, huber_loss, soft_margin_loss
TEST_CASE("losses that the exporter takes apart are one op, with their reduction and their threshold") {
  const std::string at = " in 0 at \"m.py:1 return self.criterion(x, y)\"\n";
  const std::string distance =
      "%s = aten::sub.Tensor(%x, %y)" + at + "%a = aten::abs(%s)" + at + "%l = aten::lt.Scalar(%a, 0.5)" + at;
  const std::string smooth = distance + "%p = aten::pow.Tensor_Scalar(%a, 2)" + at + "%m = aten::mul.Tensor(%p, 0.5)" +
                             at + "%d = aten::div.Tensor(%m, 0.5)" + at + "%b = aten::sub.Tensor(%a, 0.25)" + at +
                             "%w = aten::where.self(%l, %d, %b)" + at;
  const std::string huber = distance + "%p = aten::mul.Tensor(%a, 0.5)" + at + "%m = aten::mul.Tensor(%p, %a)" + at +
                            "%b = aten::sub.Tensor(%a, 0.25)" + at + "%d = aten::mul.Tensor(%b, 0.5)" + at +
                            "%w = aten::where.self(%l, %m, %d)" + at;
  const std::string margin = "%s = aten::neg(%x)" + at + "%m = aten::mul.Tensor(%s, %y)" + at + "%e = aten::exp(%m)" +
                             at + "%w = aten::log1p(%e)" + at;
  struct {
    std::string calls, op;
    bool threshold;
  } const losses[] = {{smooth, "aten::smooth_l1_loss", true},
                      {huber, "aten::huber_loss", true},
                      {margin, "aten::soft_margin_loss", false}};
  for (const auto& loss : losses)
    for (const auto& [end, reduction] :
         {std::pair{"%out = aten::mean(%w)" + at + "return %out\n", 1},
          std::pair{"%out = aten::sum(%w)" + at + "return %out\n", 2}, std::pair{std::string("return %w\n"), 0}}) {
      const Tape tape = whole(loss.calls + end);
      REQUIRE(ops_of(tape) == Ops{loss.op});
      const Call& call = tape.calls[0];
      CHECK(name_of(tape, value_at(call, 0)) == "x");
      CHECK(name_of(tape, value_at(call, 1)) == "y");
      CHECK(std::get<std::int64_t>(call.args[2].value) == reduction);
      CHECK(call.args.size() == (loss.threshold ? 4 : 3));
      if (loss.threshold) CHECK(std::get<double>(call.args[3].value) == 0.5);
    }
  // The program's own `(x - y).abs()`, which an optimizer merged with the loss's steps, stays.
  CHECK(ops_of(whole(smooth + "%out = aten::mean(%w)" + at +
                     "%t = aten::detach(%a) in 0 at \"m.py:2 t = t.detach()\"\n" + "return %out, %t\n")) ==
        Ops{"aten::sub.Tensor", "aten::abs", "aten::smooth_l1_loss", "aten::detach"});
  // A program that wrote one out itself.
  std::string own = margin + "%out = aten::mean(%w)" + at + "return %out\n";
  for (auto i = own.find("self.criterion(x, y)"); i != own.npos; i = own.find("self.criterion(x, y)"))
    own.replace(i, 20, "torch.log1p(torch.exp(-x * y)).mean()");
  CHECK(whole(own).calls.size() == 5);
  // Nearly a loss: nothing compares the distance with a threshold.
  CHECK(whole("%s = aten::sub.Tensor(%x, %y)" + at + "%a = aten::abs(%s)" + at + "return %a\n").calls.size() == 2);
}

TEST_CASE("a dropout of whole feature maps is one op, and does nothing in inference") {
  const std::string at = " in 0 at \"m.py:1 y = self.drop(x)\"\n";
  const std::string calls = "%n = aten::new_empty(%x, [2, 1])" + at + "%b = aten::bernoulli.p(%n, 0.9)" + at +
                            "%t = memplan::to_default_dtype(%b) in 0\n%d = aten::div.Scalar(%t, 0.9)" + at +
                            "%y2 = aten::mul.Tensor(%x, %d)" + at + "return %y2\n";
  for (const Mode mode : {Mode::training, Mode::inference}) {
    const Tape tape = whole(calls, mode);
    REQUIRE(ops_of(tape) == Ops{"aten::feature_dropout"});
    CHECK(std::get<bool>(tape.calls[0].args[2].value) == (mode == Mode::training));
  }
}

TEST_CASE("an adaptive pool that the exporter took apart is one op, where its line makes nothing else") {
  const auto calls = [](const std::string& line) {
    const std::string at = " in 0 at \"m.py:1 " + line + "\"\n";
    return "%image = aten::view(%x, [1, 2, 2, 2]) in 0 at \"m.py:0 image = x.view(1, 2, 2, 2)\"\n"
           "%turned = aten::permute(%image, [2, 3, 0, 1])" +
           at + "%numbers = aten::empty.memory_format([3, 2], dtype=int64)" + at +
           "%windows = aten::index.Tensor(%turned, [%numbers])" + at + "%back = aten::permute(%windows, [2, 3, 0, 1])" +
           at + "%pooled = aten::mean.dim(%back, [-1]) in 0 shapes(float32 [1, 2, 3, 3]) at \"m.py:1 " + line +
           "\"\nreturn %pooled\n";
  };
  const Tape tape = whole(calls("return F.adaptive_avg_pool2d(input, self.output_size)"));
  REQUIRE(ops_of(tape) == Ops{"aten::view", "aten::adaptive_avg_pool2d"});
  const auto& sizes = std::get<Arg::List>(tape.calls[1].args[1].value);
  REQUIRE(sizes.size() == 2);
  CHECK(std::get<std::int64_t>(sizes[0].value) == 3);
  CHECK(ops_of(whole(calls("y = F.adaptive_avg_pool2d(x, 3) * 2"))).size() == 6);
  CHECK(ops_of(whole(calls("y = self.pool(F.adaptive_avg_pool2d(x, 3))"))).size() == 6);
}

TEST_CASE("an adaptive pool reads its image, also where another one has the same table of indices") {
  const std::string at = " in 0 at \"m.py:1 return F.adaptive_avg_pool2d(input, self.output_size)\"\n",
                    pool = " in 0 shapes(float32 [1, 2, 3, 3])" + at.substr(5);
  const Tape tape = whole(
      "%image = aten::view(%x, [1, 2, 2, 2]) in 0 shapes(float32 [1, 2, 2, 2]) at \"m.py:0 image = x.view(1, 2, 2, "
      "2)\"\n"
      "%numbers = aten::empty.memory_format([3, 2], dtype=int64)" +
      at + "%turned = aten::permute(%image, [2, 3, 0, 1])" + at + "%windows = aten::index.Tensor(%turned, [%numbers])" +
      at + "%pooled = aten::mean.dim(%windows, [-1])" + pool +
      "%more = aten::exp(%image) in 0 shapes(float32 [1, 2, 2, 2]) at \"m.py:2 more = image.exp()\"\n"
      "%again = aten::permute(%more, [2, 3, 0, 1])" +
      at + "%parts = aten::index.Tensor(%again, [%numbers])" + at + "%second = aten::mean.dim(%parts, [-1])" + pool +
      "return %pooled, %second\n");
  Ops pools;
  for (const Call& c : tape.calls)
    if (c.op == "aten::adaptive_avg_pool2d") pools.push_back(name_of(tape, std::get<ValueId>(c.args[0].value)));
  CHECK(pools == Ops{"image", "more"});
}

TEST_CASE("one divided by a tensor holds the tensor until the product is made") {
  const std::string calls =
      "%sum = aten::add.Tensor(%x, 1) in 0 at \"m.py:1 y = 1 / (x + 1)\"\n"
      "%share = aten::reciprocal(%sum) in 0 at \"m.py:1 y = 1 / (x + 1)\"\n"
      "%y = aten::mul.Tensor(%share, 1) in 0 at \"m.py:1 y = 1 / (x + 1)\"\n"
      "%out = aten::exp(%y) in 0 at \"m.py:2 return y.exp()\"\nreturn %out\n";
  CHECK(gone_in(calls, "sum") == 2);
  std::string spelled = calls;
  for (auto at = spelled.find("1 / (x + 1)"); at != spelled.npos; at = spelled.find("1 / (x + 1)"))
    spelled.replace(at, 11, "(x + 1).reciprocal() * 1");
  CHECK(gone_in(spelled, "sum") == 1);
}

TEST_CASE("of a tuple that a line takes one element of, the others go at once") {
  const auto calls = [](const std::string& line) {
    return "%values, %indices = aten::sort(%x, 1) in 0 at \"m.py:1 " + line +
           "\"\n%y = aten::exp(%values) in 0 at \"m.py:2 y = y.exp()\"\n"
           "%out = aten::tanh(%y) in 0 at \"m.py:3 return y.tanh()\"\nreturn %out\n";
  };
  CHECK(gone_in(calls("y = x.sort(dim=1)[0]"), "indices") == 0);
  CHECK(gone_in(calls("y, order = x.sort(dim=1)"), "indices") > 0);
}

// torch/_refs/__init__.py, index_add: torch.ops.aten.index_put(x, (index,), tensor, accumulate=True). Segment sums are
// `out = x.new_zeros(n, d); out.index_add_(0, index, x)`.
TEST_CASE("what is added to zeros by index is index_add, in place where the zeros are its own") {
  const std::string zeros = "input %i int64 [2]\n%z = aten::zeros([3, 4], dtype=float32) in 0\n";
  const Tape own = whole(zeros + "%s = aten::index_put(%z, [%i], %x, True) in 0\nreturn %s\n");
  CHECK(ops_of(own) == Ops{"aten::zeros", "aten::index_add_"});
  const Tape shared = whole(zeros + "%s = aten::index_put(%z, [%i], %x, True) in 0\n" +
                            "%t = aten::index_put(%z, [%i], %y, True) in 0\nreturn %s, %t\n");
  CHECK(ops_of(shared) == Ops{"aten::zeros", "aten::index_add", "aten::index_add"});
  const Tape written = whole(zeros + "%s = aten::index_put(%z, [%i], %x, False) in 0\nreturn %s\n");
  CHECK(ops_of(written) == Ops{"aten::zeros", "aten::index_put"});
  const Tape columns = whole("input %j int64 [4]\n%z = aten::zeros([2, 5], dtype=float32) in 0\n" +
                             std::string("%s = aten::index_put(%z, [None, %j], %x, True) in 0\nreturn %s\n"));
  REQUIRE(ops_of(columns) == Ops{"aten::zeros", "aten::index_add_"});
  CHECK(std::get<std::int64_t>(columns.calls[1].args[1].value) == 1);
  // A .pt2 file of the training dialect has the program's own calls.
  Tape kept = from_text("input %x float32 [2, 4]\ninput %i int64 [2]\nscope 0 \"\" M\n" +
                        std::string("%z = aten::zeros([3, 4], dtype=float32) in 0\n") +
                        "%s = aten::index_put(%z, [%i], %x, True) in 0\nreturn %s\n");
  kept.exported.functional = false;
  recover_whole_ops(kept, {});
  CHECK(ops_of(kept) == Ops{"aten::zeros", "aten::index_put"});
}
