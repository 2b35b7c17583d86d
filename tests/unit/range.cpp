#include "estimators/estimate/range.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/restore/checkpoint_lines.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/restore/host_numbers.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/restore/names.h"
#include "estimators/restore/open_places.h"
#include "estimators/tape/tape_text.h"
#include "estimators/transforms/own_functions.h"
#include "lives.h"

using namespace memplan;

namespace {

Tape lowered(std::string_view text) {
  Tape tape = from_text(text);
  bind_names(tape);
  number_checkpointed_lines(tape);
  note_open_places(tape);
  mark_last_uses(tape);
  return tape;
}

/// The call after which the value is gone, with names read as `names`.
int gone_after(Tape tape, NameReading names, std::string_view name) {
  tape.reading.names = names;
  return test::gone_after(std::move(tape), name);
}

TrainingSetup inference() {
  TrainingSetup setup;
  setup.mode = Mode::inference;
  return setup;
}

Estimate ranged(const Tape& tape, const TrainingSetup& setup) {
  const Device device = choose_device("h100-80gb").device;
  return memplan::unwrap(with_range(Model{}, tape, setup, device, memplan::unwrap(estimate_tape(tape, setup, device))));
}

/// Of requested bytes, in the range above the estimate.
Bytes room_above(const Tape& tape, const TrainingSetup& setup) {
  const Estimate e = ranged(tape, setup);
  return e.high.requested - e.peak.requested;
}

bool in_order(const Estimate& e) {
  return std::all_of(each_counter.begin(), each_counter.end(), [&](auto counter) {
    return e.low.*counter <= e.peak.*counter && e.peak.*counter <= e.high.*counter;
  });
}

const char* const helper = R"tape(
input %x float32 [1024, 1024]
scope 0 "" M
%a = aten::relu(%x) in 0 at "m.py:1 y = self.features(x)"
%b = aten::exp(%a) in 0 at "m.py:1 y = self.features(x)"
%c = aten::tanh(%b) in 0 at "m.py:1 y = self.features(x)"
%d = aten::sigmoid(%c) in 0 at "m.py:2 return sigmoid(y)"
return %d
)tape";

}  // namespace

TEST_CASE("names that the file does not show may hold each kind of result until the line has run") {
  const Tape tape = lowered(helper);
  CHECK(gone_after(tape, NameReading::as_told, "a") == 1);
  CHECK(gone_after(tape, NameReading::held, "a") == 2);
  CHECK(gone_after(tape, NameReading::as_told, "c") == 3);
  CHECK(gone_after(tape, NameReading::freed, "b") == 2);
}

TEST_CASE("a loop inside of a helper binds its name again") {
  const Tape tape = lowered(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 blocks.0 Block in 0 at "m.py:1 y = self.features(x)"
scope 2 blocks.1 Block in 0 at "m.py:1 y = self.features(x)"
scope 3 blocks.2 Block in 0 at "m.py:1 y = self.features(x)"
%a = aten::relu(%x) in 1 at "b.py:1 return relu(x)"
%b = aten::relu(%a) in 2 at "b.py:1 return relu(x)"
%c = aten::relu(%b) in 3 at "b.py:1 return relu(x)"
%d = aten::exp(%c) in 0 at "m.py:2 return exp(y)"
return %d
)tape");
  CHECK(gone_after(tape, NameReading::held, "a") == 1);
  CHECK(gone_after(tape, NameReading::held, "b") == 2);
}

// CPython: a local name holds its list, and the list its members, until the name is bound again or the frame returns.
TEST_CASE("a list that is joined by its name holds its members until the name is bound again") {
  const auto joined = [](const char* line) {
    return lowered(std::string(R"tape(
input %x float32 [2]
scope 0 "" M
%a = aten::relu(%x) in 0 at "m.py:1 put(outs, relu(x))"
%b = aten::cat([%a, %a]) in 0 at "m.py:2 )tape") +
                   line + R"tape("
%c = aten::exp(%b) in 0 at "m.py:3 z = exp(y)"
%d = aten::tanh(%c) in 0 at "m.py:4 return tanh(z)"
return %d
)tape");
  };
  CHECK(gone_after(joined("y = torch.cat(outs)"), NameReading::as_told, "a") == 3);
  CHECK(gone_after(joined("y = torch.cat(outs[::-1], 1)"), NameReading::as_told, "a") == 3);
  CHECK(gone_after(joined("y = torch.cat(outs)"), NameReading::freed, "a") == 1);
  CHECK(gone_after(joined("outs = torch.cat(outs)"), NameReading::as_told, "a") == 1);
  CHECK(gone_after(joined("y = torch.cat([u, v])"), NameReading::as_told, "a") == 1);
  // Whose attribute it is, and what a call returns, no line tells.
  CHECK(gone_after(joined("y = torch.cat(self.outs)"), NameReading::as_told, "a") == 1);
  CHECK(gone_after(joined("y = torch.cat(self.outs)"), NameReading::held, "a") == 3);
}

TEST_CASE("a list that comes as an argument may hold its members until the caller returns") {
  const Tape tape = lowered(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 block Block in 0 at "m.py:2 y = self.block(x, outs)"
%a = aten::relu(%x) in 1 at "b.py:1 outs.append(relu(x))"
%b = aten::cat([%a, %a]) in 1 at "b.py:2 return torch.cat(outs)"
%c = aten::exp(%b) in 0 at "m.py:3 z = exp(y)"
%d = aten::tanh(%c) in 0 at "m.py:4 return tanh(z)"
return %d
)tape");
  CHECK(gone_after(tape, NameReading::as_told, "a") == 1);
  CHECK(gone_after(tape, NameReading::held, "a") == 3);
}

TEST_CASE("what weights alone give may be kept in a cache") {
  const Tape tape = lowered(R"tape(
input %x float32 [2]
parameter %w float32 [2]
scope 0 "" M
%a = aten::exp(%x) in 0 at "m.py:1 x = exp(x)"
%bias = aten::relu(%w) in 0 at "m.py:2 bias = self.bias()"
%b = aten::add.Tensor(%a, %bias) in 0 at "m.py:3 bias = x + bias"
%c = aten::tanh(%b) in 0 at "m.py:4 return tanh(bias)"
return %c
)tape");
  CHECK(gone_after(tape, NameReading::as_told, "bias") == 2);
  CHECK(gone_after(tape, NameReading::held, "bias") == 3);
  // One that is full since the step before is there from the start.
  Tape filled = tape;
  fill_caches_first(filled);
  CHECK(filled.calls[0].op == "aten::relu");
  CHECK(filled.calls[1].op == "aten::exp");
}

// (context, weights), which every caller hands on under a name of its own.
TEST_CASE("attention weights may be held by every caller that only calls") {
  const Tape tape = lowered(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 layer Layer in 0 at "m.py:1 outputs = self.layer(x)"
scope 2 layer.self Self in 1 at "l.py:1 found = self.self(x)"
%s = aten::softmax.int(%x, -1) in 2 at "a.py:1 probs = softmax(x)"
%p = aten::dropout(%s, 0.1, True) in 2 at "a.py:2 probs = dropout(probs)"
%y = aten::mul.Tensor(%p, %x) in 2 at "a.py:3 context = probs * x"
%z = aten::relu(%y) in 1 at "l.py:2 y = relu(found[0])"
%e = aten::exp(%z) in 0 at "m.py:2 x = exp(outputs[0])"
%r = aten::tanh(%e) in 0 at "m.py:3 return tanh(x)"
return %r
)tape");
  CHECK(gone_after(tape, NameReading::as_told, "p") == 2);
  CHECK(gone_after(tape, NameReading::held, "p") == 5);
}

TEST_CASE("names that no line binds may hold what a line reads besides the names that it shows") {
  const Tape tape = lowered(R"tape(
input %x float32 [2]
scope 0 "" M
%a = aten::relu(%x) in 0 at "m.py:2 x = relu(x)"
%b = aten::exp(%a) in 0 at "m.py:4 x = exp(x)"
%c = aten::add.Tensor(%b, %a) in 0 at "m.py:5 x = x + scale * residual"
%d = aten::tanh(%c) in 0 at "m.py:6 return tanh(x)"
return %d
)tape");
  CHECK(gone_after(tape, NameReading::as_told, "a") == 2);
  CHECK(gone_after(tape, NameReading::held, "a") == 3);
  CHECK(gone_after(tape, NameReading::held, "b") == 2);
}

TEST_CASE("the range is what other readings of the file give, in bytes of PyTorch") {
  const Estimate e = ranged(lowered(helper), inference());
  CHECK(in_order(e));
  // x, then two of a, b, c, d at a time; a helper's names could hold a beside b and c. The name y holds c beside d.
  constexpr std::int64_t one = 4 << 20;
  CHECK(e.high.requested - e.peak.requested == Bytes(one));
  CHECK(e.low.requested == e.peak.requested);
  CHECK(e.requested_basis == Basis::modelled);
}

TEST_CASE("where no reading of the names moves a byte, they have no part in the figure") {
  const Estimate e = ranged(lowered(R"tape(
input %x float32 [1024, 1024]
scope 0 "" M
%a = aten::relu(%x) in 0 at "m.py:1 y = relu(x)"
%b = aten::exp(%a) in 0 at "m.py:2 return exp(y)"
return %b
)tape"),
                            inference());
  CHECK(e.low.requested == e.high.requested);
  CHECK(e.requested_basis == Basis::exact);
}

TEST_CASE("an autograd.Function keeps between its ends and everything that it makes") {
  Tape tape = from_text(R"tape(
input %x float32 [1024, 1024]
parameter %w float32 [1024, 1024]
scope 0 "" M
%h = aten::linear(%x, %w) in 0
%a = aten::exp(%h) in 0
%b = aten::exp(%a) in 0
%c = aten::exp(%b) in 0
%e = aten::add.Tensor(%c, 1) in 0
%d = aten::sum(%e) in 0
return %d
)tape");
  for (std::size_t i = 1; i <= 4; ++i) tape.calls[i].function = 0;
  note_open_places(tape);
  mark_last_uses(tape);
  REQUIRE(tape.notes.size() == 1);
  CHECK(tape.notes[0].code == "MP016 own-function");
  const Device device = choose_device("h100-80gb").device;
  const auto tensors = [&](FunctionReading functions) {  // of 4 MiB; sums and losses are a few bytes
    Tape other = tape;
    other.reading.functions = functions;
    join_own_functions(other);
    return memplan::unwrap(estimate_tape(other, {}, device)).peak.requested.count >> 22;
  };
  // h and two results at a time; the three results that exp() saves, and the last one; h as well.
  CHECK(tensors(FunctionReading::pieces) == tensors(FunctionReading::alone) + 1);
  CHECK(tensors(FunctionReading::all) == tensors(FunctionReading::pieces) + 1);
  // A backward pass that takes what the forward pass took needs no more beside it.
  CHECK(tensors(FunctionReading::ends) == tensors(FunctionReading::alone));
}

TEST_CASE("a line with checkpoint() marks what it calls, one with a choice may") {
  const std::string line = "checkpoint(self.a, x, use_reentrant=False)\"",
                    choice = "checkpoint(self.a, x) if self.c else self.a(x)\"";
  const auto checkpointed = [](const std::string& call) {
    std::string text = R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 a Block in 0 at "m.py:1 x = LINE
scope 2 b Block in 0 at "m.py:2 x = LINE
%a = aten::relu(%x) in 1 at "b.py:1 return relu(x).exp()"
%b = aten::exp(%a) in 1 at "b.py:1 return relu(x).exp()"
%c = aten::relu(%b) in 2 at "b.py:1 return relu(x).exp()"
%d = aten::exp(%c) in 0 at "m.py:3 return x.exp()"
return %d
)tape";
    for (auto at = text.find("LINE"); at != text.npos; at = text.find("LINE")) text.replace(at, 4, call);
    return lowered(text);
  };
  const Tape sure = checkpointed(line);
  const auto told =
      std::find_if(sure.notes.begin(), sure.notes.end(), [](const Fact& f) { return f.about == About::checkpointing; });
  REQUIRE(told != sure.notes.end());
  CHECK(told->count == 2);
  CHECK(sure.calls[0].checkpoint >= 0);
  CHECK(sure.calls[1].checkpoint == sure.calls[0].checkpoint);
  CHECK(sure.calls[2].checkpoint > sure.calls[1].checkpoint);
  CHECK(sure.calls[3].checkpoint == -1);
  Tape open = checkpointed(choice);
  CHECK(open.calls[0].checkpoint == -1);
  open.reading.own_checkpoints = true;
  checkpoint_open_places(open);
  REQUIRE(open.checkpoints.size() == 2);
  CHECK(open.checkpoints[0].last == 1);
  CHECK(open.checkpoints[1].first == 2);
}

// own code: `m, z = self.trunk(m, z)`, whose loop calls checkpoint() on some of the blocks
TEST_CASE("modules of one class that a method without lines calls may be checkpointed") {
  const auto may_be = [](const std::string& line, const std::string& of_class) {
    const std::string scope = " " + of_class + " in 0 at \"m.py:1 " + line + "\"\n";
    Tape tape = lowered(R"tape(
input %x float32 [2]
scope 0 "" M
scope 1 blocks.0)tape" + scope +
                        "scope 2 blocks.1" + scope + R"tape(
%a = aten::relu(%x) in 1 at "b.py:1 return relu(x).exp()"
%b = aten::exp(%a) in 1 at "b.py:1 return relu(x).exp()"
%c = aten::relu(%b) in 2 at "b.py:1 return relu(x).exp()"
%d = aten::exp(%c) in 0 at "m.py:3 return x.exp()"
return %d
)tape");
    tape.reading.own_checkpoints = true;
    checkpoint_open_places(tape);
    return tape.checkpoints.size();
  };
  CHECK(may_be("x = self.trunk(x)", "own.Block") == 2);
  CHECK(may_be("x = block(x)", "own.Block") == 0);
  CHECK(may_be("x = self.blocks(x)", "own.Block") == 0);
  CHECK(may_be("x = self.forward_features(x)", "timm.models.vision_transformer.Block") == 0);
}

TEST_CASE("a range holds its estimate whatever sources and bounds it is made of") {
  std::mt19937 random(7);
  const auto bytes = [&] { return Bytes(static_cast<std::int64_t>(random() % 5000)); };
  for (int round = 0; round < 200; ++round) {
    Estimate e;
    for (const auto counter : each_counter) e.peak.*counter = bytes();
    for (std::uint32_t i = random() % 4; i > 0; --i) {
      Fact f{{},
             "a sentence",
             static_cast<Evidence>(random() % evidence_names.size()),
             static_cast<About>(random() % about_names.size())};
      if (random() % 2) f.off = Effect{bytes(), bytes()};
      e.facts.push_back(f);
    }
    std::vector<RangeSource> sources;
    for (std::uint32_t i = random() % 3; i > 0; --i) {
      RangeSource s{static_cast<About>(random() % about_names.size()), "a source", {}, {}};
      for (const auto counter : each_counter) s.below.*counter = bytes(), s.above.*counter = bytes();
      sources.push_back(s);
    }
    conclude_range(e, sources);
    REQUIRE(in_order(e));
    // A fact that may be below lowers the low end, and no fact narrows the range.
    Estimate wider = e;
    wider.facts.push_back({{}, "a bound", Evidence::assumed, About::shape, {}, {}, -1, 1, Effect{Bytes(10), Bytes()}});
    const bool priced =
        std::any_of(sources.begin(), sources.end(), [](const RangeSource& s) { return s.about == About::shape; });
    conclude_range(wider, sources);
    for (const auto counter : each_counter) {
      if (!priced && e.low.*counter >= Bytes(10)) CHECK(wider.low.*counter == e.low.*counter - Bytes(10));
      CHECK(wider.high.*counter == e.high.*counter);
    }
  }
}

TEST_CASE("tensors made from numbers may be on the CPU, where neither line nor class says where they are") {
  const auto ops = [](const char* line, const char* module) {
    Tape tape = from_text(std::string("input %x float32 [4]\nscope 0 \"\" ") + module + R"tape(
%n = aten::sym_size.int(%x, 0) in 0
%positions = aten::arange(%n) in 0 shapes(int64 [4]) at "m.py:1 )tape" +
                          line + R"tape("
%doubled = aten::mul.Tensor(%positions, 2) in 0 shapes(int64 [4]) at "m.py:2 return helper(x)"
%y = aten::index.Tensor(%x, [%doubled]) in 0 shapes(float32 [4]) at "m.py:3 return x[index]"
return %y
)tape");
    CHECK(has_numbers_without_device(tape) == (line[0] == 'i'));
    tape.reading.numbers_on_host = true;
    leave_on_host(tape);
    std::string found;
    for (const Call& c : tape.calls) found += c.op + " ";
    return found;
  };
  // The index is read from the CPU, and what it is made of is nowhere else.
  CHECK(ops("index = self.helper(x)", "own.M") == "aten::sym_size.int memplan::on_cpu aten::index.Tensor ");
  CHECK(ops("torch.arange(n, device=x.device)", "own.M") ==
        "aten::sym_size.int aten::arange aten::mul.Tensor aten::index.Tensor ");
}

// y = norm(conv(x)) * self.gamma[i] with gamma = torch.ones(4): the exporter's optimizer leaves no product.
TEST_CASE("a line that names a parameter which no node reads may make one tensor more, and keep one in training") {
  Tape tape = lowered(R"tape(
input %x float32 [1024, 1024]
parameter %w float32 [1024, 1024]
scope 0 "" M
%a = aten::mm(%x, %w) in 0 shapes(float32 [1024, 1024]) at "m.py:1 y = torch.mm(x, self.w) * self.gamma[i]"
%b = aten::mm(%a, %w) in 0 shapes(float32 [1024, 1024]) at "m.py:2 y = torch.mm(y, self.w)"
%c = aten::mm(%b, %w) in 0 shapes(float32 [1024, 1024]) at "m.py:1 y = torch.mm(y, self.w) * self.gamma[i]"
return %c
)tape");
  const Bytes before = room_above(tape, {}), in_inference = room_above(tape, inference());
  tape.exported.lost_parameters = {"head.gamma", "other"};  // of another module, of no line
  CHECK(room_above(tape, {}) == before);
  tape.exported.lost_parameters = {"gamma"};
  CHECK(room_above(tape, {}) == before + Bytes::mib(8));
  CHECK(room_above(tape, inference()) == in_inference + Bytes::mib(4));
}

// transformers 5.23.0, models/pp_lcnet_v3/modeling_pp_lcnet_v3.py:79: scale * hidden_state + bias, ones and zeros.
TEST_CASE("a module of which a file has nothing but lost parameters may have made what its caller makes") {
  Tape tape = lowered(R"tape(
input %x float32 [1024, 1024]
parameter %w float32 [1024, 1024]
scope 0 "" M
scope 1 block Block in 0
scope 2 block.act torch.nn.modules.activation.ReLU in 1
%a = aten::mm(%x, %w) in 1 shapes(float32 [1024, 1024])
%b = aten::relu(%a) in 2 shapes(float32 [1024, 1024])
return %b
)tape");
  const Bytes before = room_above(tape, {});
  tape.exported.lost_parameters = {"block.head.weight", "block.head.bias", "block.act.alpha", "other.scale"};
  CHECK(room_above(tape, {}) == before);
  tape.exported.lost_parameters = {"block.lab.scale", "block.lab.bias"};
  CHECK(room_above(tape, {}) == before + Bytes::mib(4));
}

TEST_CASE("a call that the exporter numbered and the file has lost may have made as much as those beside it") {
  Tape tape = lowered(R"tape(
input %x float32 [1024, 1024]
parameter %w float32 [1024, 1024]
scope 0 "" M
%mm = aten::mm(%x, %w) in 0 shapes(float32 [1024, 1024]) at "m.py:1 y = torch.mm(x, self.w)"
%cat_1 = aten::cat([%mm, %mm]) in 0 shapes(float32 [2048, 1024]) at "m.py:2 y = torch.cat([y, y])"
%exp = aten::exp(%cat_1) in 0 shapes(float32 [2048, 1024]) at "m.py:3 y = y.exp()"
%cat_4 = aten::cat([%exp, %exp]) in 0 shapes(float32 [4096, 1024]) at "m.py:4 y = torch.cat([y, y])"
return %cat_4
)tape");
  const Bytes before = room_above(tape, {}), in_inference = room_above(tape, inference());
  tape.exported.left_out = {"cat", "cat_2"};
  CHECK(room_above(tape, {}) == before + Bytes::mib(8 + 16));
  CHECK(room_above(tape, inference()) == in_inference + Bytes::mib(16));
}
