// Every invariant of a tape: broken by hand, and named by check().
#include <doctest/doctest.h>

#include <functional>

#include "estimators/base/error.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

Tape sound_tape() {
  return from_text(R"tape(
input %x float32 [2, 4]
parameter %w float32 [4, 4]
buffer %b float32 [4]
binding 0 {h}
scope 0 "" M
scope 1 fc Linear in 0
%h = aten::linear(%x, %w, %b) in 1 by 0
%r = aten::relu_(%h) in 0
%t = aten::tanh(%r) in 0 del(%h %r)
%u = aten::exp(%t) in 0 del(%t)
checkpoint 0 2 in 0
checkpoint 1 1 in 1
return %u
)tape");
}

/// What check() says of the tape once `damage` was done to it.
Error said_after(const std::function<void(Tape&)>& damage) {
  Tape tape = sound_tape();
  damage(tape);
  try {
    check(tape, "restore", "casts");
  } catch (const Failure& f) {
    return f.error();
  }
  return {ErrorKind::usage, "nothing", {}, {}};
}

}  // namespace

TEST_CASE("a sound tape passes") { CHECK_NOTHROW(check(sound_tape())); }

TEST_CASE("what is wrong with a tape is said with stage, call and op") {
  const Error e = said_after([](Tape& t) { t.calls[1].args[0] = {ValueId{99}}; });
  CHECK(e.kind == ErrorKind::internal);
  CHECK(e.what == "a tape is not sound: an argument is value 99 of 7");
  CHECK(e.where == "restore, casts: call 1, aten::relu_");
}

TEST_CASE("every invariant of a tape is checked") {
  const ValueId x{0}, w{1}, h{3}, r{4}, t{5}, u{6};
  const struct {
    const char* says;
    std::function<void(Tape&)> damage;
  } cases[] = {
      {"an argument is value -1 of 7", [&](Tape& a) { a.calls[0].args[0] = {ValueId{}}; }},
      {"value 5 't' is read before it is made", [&](Tape& a) { a.calls[1].args[0] = {t}; }},
      {"value 3 'h' is made twice", [&](Tape& a) { a.calls[1].outputs = {h}; }},
      {"value 1 'w' is a result and no computed value", [&](Tape& a) { a.calls[1].outputs = {w}; }},
      {"a result is value 7 of 7", [&](Tape& a) { a.calls[1].outputs = {ValueId{7}}; }},
      {"value 5 't' is returned, and was let go after call 3", [&](Tape& a) { a.outputs = {t}; }},
      {"value 6 'u' is returned and never made", [&](Tape& a) { a.calls.pop_back(); }},
      {"there is no scope 2", [](Tape& a) { a.calls[0].scope = 2; }},
      {"scope 0 '' has scope 1 as its parent", [](Tape& a) { a.scopes[0].parent = 1; }},
      {"there is no binding 1", [](Tape& a) { a.calls[0].binding = 1; }},
      {"binding 0 has an assignment to no name", [](Tape& a) { a.bindings[0].targets.front().clear(); }},
      {"parameter is value 9 of 7", [](Tape& a) { a.parameters.push_back(ValueId{9}); }},
      {"value 0 'x' is listed as parameter and is none", [&](Tape& a) { a.parameters.push_back(x); }},
      {"value 1 'w' is listed twice as parameter", [&](Tape& a) { a.parameters.push_back(w); }},
      {"value 0 'x' has a size of -4", [](Tape& a) { a.values[0].sizes[1] = -4; }},
      {"value 0 'x' is tied to one that is tied itself",
       [&](Tape& a) { a.values[1].same_storage_as = x, a.values[0].same_storage_as = w; }},
      {"an in-place op has nothing to write into", [](Tape& a) { a.calls[1].args.clear(); }},
      {"value 4 'r' is let go before it is made", [&](Tape& a) { a.calls[0].last_uses = {r}; }},
      {"value 5 't' is let go twice",
       [&](Tape& a) {
         a.calls[2].last_uses.clear(), a.calls[3].last_uses = {t, t};
       }},
      {"value 5 't' is read, and was let go after call 2", [&](Tape& a) { a.calls[2].last_uses.push_back(t); }},
      {"value 1 'w' is let go and is no computed value", [&](Tape& a) { a.calls[2].last_uses.push_back(w); }},
      {"value 6 'u' is released before it is made", [&](Tape& a) { a.calls[0].releases = {u}; }},
      {"the checkpoint over calls 0 to 4 is not among the tape's 4", [](Tape& a) { a.checkpoints[0].last = 4; }},
      {"the checkpoint over calls 1 to 3 begins inside of another one and ends after it",
       [](Tape& a) { a.checkpoints[1].last = 3; }},
      {"the checkpoint over calls 0 to 2 stands after one that begins later",
       [](Tape& a) { std::swap(a.checkpoints[0], a.checkpoints[1]); }},
      {"the checkpoint over calls 0 to 2 is of scope 7", [](Tape& a) { a.checkpoints[0].others = {7}; }},
  };
  for (const auto& c : cases) {
    CAPTURE(c.says);
    CHECK(said_after(c.damage).what == std::string("a tape is not sound: ") + c.says);
  }
}
