// What one name of a frame holds of a list that a module, a helper or a comprehension has made.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "estimators/tape/tape_text.h"
#include "lives.h"

using namespace memplan;

namespace {

/// The index of the call after which a value is gone.
int let_go_after(const std::string& calls, std::string_view name) {
  return memplan::test::gone_after(from_text("input %x float32 [2]\ninput %y float32 [2]\nscope 0 \"\" M\n" + calls),
                                   name);
}

/// Two calls of a module, whose first results are `a` and `c`; `first`: what is read of the first call's.
std::string two_calls(const std::string& first) {
  return "scope 1 vgg V in 0 at \"m.py:1 f = self.vgg(x)\"\n"
         "scope 2 vgg V in 0 call 1 at \"m.py:2 g = self.vgg(y)  # of the goal\"\n"
         "%a = aten::exp(%x) in 1 at \"v.py:1 a = x.exp()\"\n"
         "%b = aten::tanh(%a) in 1 at \"v.py:2 b = a.tanh()\"\n"
         "%c = aten::exp(%y) in 2 at \"v.py:1 a = x.exp()\"\n"
         "%d = aten::tanh(%c) in 2 at \"v.py:2 b = a.tanh()\"\n"
         "%l = aten::add.Tensor(" +
         first +
         ", %b) in 0 at \"m.py:3 l = f[0] + f[1]\"\n"
         "%m = aten::add.Tensor(%l, %d) in 0 at \"m.py:4 m = l + g[1]\"\n"
         "%out = aten::cos(%m) in 0 at \"m.py:5 return m.cos()\"\nreturn %out\n";
}

}  // namespace

TEST_CASE("a list that a module returns has in every call what one call's readers took of it") {
  CHECK(let_go_after(two_calls("%a"), "c") == 6);  // nobody reads g[0], and `g` holds it
  CHECK(let_go_after(two_calls("%x"), "c") == 3);  // one result is no list
}

TEST_CASE("a helper that no frame shows returns lists as well") {
  const std::string line = " in 0 at \"m.py:1 f, g = self.features(x), self.features(y)\"\n";
  const auto calls = [&](const std::string& first) {
    return "%a = aten::exp(%x)" + line + "%b = aten::tanh(%a)" + line + "%c = aten::exp(%y)" + line +
           "%d = aten::tanh(%c)" + line + "%l = aten::add.Tensor(" + first +
           ", %b) in 0 at \"m.py:2 l = f[0] + f[1]\"\n"
           "%m = aten::add.Tensor(%l, %d) in 0 at \"m.py:3 m = l + g[1]\"\n"
           "%out = aten::cos(%m) in 0 at \"m.py:4 return m.cos()\"\nreturn %out\n";
  };
  CHECK(let_go_after(calls("%a"), "c") == 6);
  CHECK(let_go_after(calls("%x"), "c") == 3);
}

TEST_CASE("a call that stands for several lines has the text of the first and the names of the last") {
  const std::string calls =
      "binding 0\n%a = aten::exp(%x) in 0 by 0 at \"m.py:1 y = self.exp(x)\"\n"
      "%out = aten::cos(%a) in 0 at \"m.py:4 return y.cos()\"\nreturn %out\n";
  CHECK(let_go_after(calls, "a") == 1);
}

TEST_CASE("a list of a comprehension holds all its elements until its name is bound again") {
  const std::string first = " in 0 at \"m.py:1 h = [c(x) for c in self.convs]\"\n",
                    second = " in 0 at \"m.py:2 h = [F.relu(i) for i in h]\"\n";
  const std::string calls = "%a = aten::exp(%x)" + first + "%b = aten::exp(%x)" + first + "%c = aten::relu(%a)" +
                            second + "%d = aten::relu(%b)" + second +
                            "%out = aten::add.Tensor(%c, %d) in 0 at \"m.py:3 return sum(h)\"\nreturn %out\n";
  CHECK(let_go_after(calls, "a") == 3);
  CHECK(let_go_after(calls, "b") == 3);
}

TEST_CASE("`x += y` reads x, and no other name of the line stands for it") {
  const std::string calls =
      "%a = aten::exp(%x) in 0 at \"m.py:1 h = x.exp()\"\n"
      "%b = aten::add_.Tensor(%a, %y) in 0 at \"m.py:2 h += self.pos[:, :n]\"\n"
      "%c = aten::tanh(%b) in 0 at \"m.py:3 h = h.tanh()\"\n"
      "%out = aten::cos(%c) in 0 at \"m.py:4 return h.cos()\"\nreturn %out\n";
  CHECK(let_go_after(calls, "a") == 1);
}

TEST_CASE("a line that calls several modules of one class, each inside of the next, is no loop") {
  // "x" has the first result until the line ends; a loop's turn would have let go of it.
  const auto calls = [](const std::string& line, const std::string& second) {
    return "scope 1 stem torch.nn.Conv2d in 0 at \"m.py:1 x = self.stem(x)\"\n"
           "scope 2 layer1 torch.nn.Sequential in 0 at \"m.py:2 " +
           line + "\"\nscope 3 " + second + " torch.nn.Sequential in 0 at \"m.py:2 " + line +
           "\"\n%a = aten::exp(%x) in 1 at \"s.py:1 return x.exp()\"\n"
           "%b = aten::tanh(%a) in 2 at \"s.py:1 return x.tanh()\"\n"
           "%c = aten::tanh(%b) in 3 at \"s.py:1 return x.tanh()\"\n"
           "%out = aten::cos(%c) in 0 at \"m.py:3 return x.cos()\"\nreturn %out\n";
  };
  CHECK(let_go_after(calls("x = self.layer2(self.layer1(x))", "layer2"), "a") == 2);
  CHECK(let_go_after(calls("x = self.layers[i](x)", "layer2"), "a") == 1);
}

TEST_CASE("of a tuple that a module returns the lines tell which name holds what") {
  // `x, gate = self.norm(x, t)` returns first what it makes last.
  const std::string two =
      "scope 1 norm N in 0 at \"m.py:1 normed, gate = self.norm(x, t)\"\n"
      "%g = aten::exp(%y) in 1\n%n = aten::tanh(%x) in 1\n"
      "%k = aten::sin(%g) in 0 at \"m.py:2 k = gate.sin()\"\n"
      "%m = aten::mul.Tensor(%n, %k) in 0 at \"m.py:3 m = self.mix(\"\n"
      "%o = aten::cos(%m) in 0 at \"m.py:4 normed = m.cos()\"\n"
      "%p = aten::sin(%o) in 0 at \"m.py:5 p = normed.sin()\"\n"
      "%out = aten::exp(%p) in 0 at \"m.py:6 return p.exp()\"\nreturn %out\n";
  CHECK(let_go_after(two, "n") == 4);  // `normed` gets another value there
  CHECK(let_go_after(two, "g") == 6);  // `gate` is never bound again
  // Where no line has one of the names alone, they go in the order in which results are made.
  std::string other = two;
  const std::string line = "k = gate.sin()";
  other.replace(other.find(line), line.size(), "k = normed.sin() + gate");
  CHECK(let_go_after(other, "g") == 4);
}
