// Lists and dicts of a frame hold what its lines put into them.
#include <doctest/doctest.h>

#include <string>

#include "estimators/tape/tape_text.h"
#include "lives.h"

using namespace memplan;

namespace {

/// The index of the call after which `first` is gone, which `line` makes and `read` reads; call 3 is the frame's last.
int gone_after(const std::string& line, const std::string& op = "aten::exp", const std::string& more = "x = x.tanh()") {
  const Tape tape = from_text("input %in float32 [2]\nscope 0 \"\" M\n%first = " + op + "(%in) in 0 at \"m.py:1 " +
                              line + "\"\n%read = aten::relu(%first) in 0 at \"m.py:2 y = F.relu(get())\"\n" +
                              "%x = aten::tanh(%read) in 0 at \"m.py:3 " + more +
                              "\"\n%out = aten::cos(%x) in 0 at \"m.py:4 return x.cos()\"\nreturn %out\n");
  return memplan::test::gone_after(tape, "first");
}

}  // namespace

TEST_CASE("a list or a dict holds what is put into it until the frame returns") {
  for (const char* line : {"outs.append(x.exp())", "X[0, 1] = self.node(X, 0, 1)", "feats[name] = x.exp()",
                           "h['p3'] = x.exp()", "levels[i - 1] = x.exp()"}) {
    CAPTURE(line);
    CHECK(gone_after(line) == 3);
  }
}

TEST_CASE("it lets go where its name is bound again or gives away what it has") {
  CHECK(gone_after("outs.append(x.exp())", "aten::exp", "outs = [x.tanh()]") == 2);
  CHECK(gone_after("outs.append(x.exp())", "aten::exp", "x = outs.pop().tanh()") == 1);
}

TEST_CASE("a part of a tensor, or of an expression, is no such place") {
  CHECK(gone_after("x[:, 0] = y.exp()") == 1);
  CHECK(gone_after("x[..., 0] = y.exp()") == 1);
  CHECK(gone_after("x[None] = y.exp()") == 1);
  CHECK(gone_after("x[mask] = y", "aten::index_put_") == 1);
  CHECK(gone_after("x[0] == y.exp()") == 1);
  CHECK(gone_after("outs.append(x).exp()") == 1);
  CHECK(gone_after("self.outs.append(x.exp())") == 1);
}
