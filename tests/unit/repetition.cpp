#include "estimators/runtime/torch/step/repetition.h"

#include <doctest/doctest.h>

#include "estimators/base/unwrap.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/transforms/checkpointing.h"
#include "estimators/transforms/parallel.h"
#include "tape_builder.h"

using namespace memplan;
using namespace memplan::testing;

namespace {

/// Where somebody looks on, no micro-batch and no step is left to its copy.
struct Onlooker : CallObserver {
  std::int64_t calls = 0;
  void before(Run&, std::size_t, const std::vector<Value>&,
              const std::vector<std::pair<std::string, Value>>&) override {
    ++calls;
  }
  void after(Run&, std::size_t, const ValueList&) override {}
};

void check_same(const Schedule& a, const Schedule& b) {
  REQUIRE(a.events.size() == b.events.size());
  REQUIRE(a.allocations.size() == b.allocations.size());
  REQUIRE(a.ops.size() == b.ops.size());
  CHECK(a.step_begins == b.step_begins);
  CHECK(a.names == b.names);
  std::size_t unlike = 0;
  for (std::size_t i = 0; i < a.events.size(); ++i)
    unlike += a.events[i].kind != b.events[i].kind || a.events[i].allocation != b.events[i].allocation;
  for (std::size_t i = 0; i < a.allocations.size(); ++i) {
    const Allocation &x = a.allocations[i], &y = b.allocations[i];
    unlike += x.size != y.size || x.born != y.born || x.died != y.died || x.op != y.op || x.stream != y.stream ||
              x.category != y.category || x.label != y.label || x.reason != y.reason || x.shape_at != y.shape_at;
  }
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const OpRecord &x = a.ops[i], &y = b.ops[i];
    unlike += x.name != y.name || x.scope != y.scope || x.call != y.call || x.phase != y.phase || x.step != y.step ||
              x.first_event != y.first_event;
  }
  CHECK(unlike == 0);
  REQUIRE(a.notes.size() == b.notes.size());
  for (std::size_t i = 0; i < a.notes.size(); ++i) CHECK(a.notes[i].count == b.notes[i].count);
}

void check_as_if_run(const Tape& tape, const TrainingSetup& setup) {
  const Device device = choose_device("h100-80gb").device;
  const Ranks ranks = resolve(setup.parallel);
  Onlooker onlooker;
  const Schedule run = unwrap(run_steps_observed(tape, setup, ranks, device, &onlooker));
  CHECK(onlooker.calls > 0);
  check_same(unwrap(run_steps_observed(tape, setup, ranks, device, nullptr)), run);
}

}  // namespace

TEST_CASE("micro-batches and steps that are recorded once more are those that would have run") {
  const Tape plain = two_layer_tape(3, 64, 128);
  Tape checkpointed = plain;
  checkpoint_modules(checkpointed, {"blocks"});
  for (const Tape& tape : {plain, checkpointed})
    for (const std::int64_t accumulate : {1, 2, 3, 4, 5, 9, 100})
      for (const std::int64_t steps : {1, 2, 3, 4, 5, 30})
        for (const ZeroGrad zero_grad : {ZeroGrad::begin_set_none, ZeroGrad::before_backward, ZeroGrad::end_set_none})
          for (const Precision precision : {Precision::fp32, Precision::amp_bf16, Precision::amp_fp16}) {
            TrainingSetup setup;
            setup.accumulate = accumulate;
            setup.steps = steps;
            setup.zero_grad = zero_grad;
            setup.precision = precision;
            setup.clip_grad_norm = steps == 4;
            setup.empty_cache = accumulate == 2;
            check_as_if_run(tape, setup);
          }
}

TEST_CASE("steps of several ranks and of inference are recorded once more likewise") {
  const Tape tape = two_layer_tape(3, 64, 128);
  for (const Sharding sharding : {Sharding::none, Sharding::fsdp, Sharding::zero1, Sharding::zero2, Sharding::zero3})
    for (const std::int64_t accumulate : {1, 4, 12}) {
      if (accumulate > 1 && sharding != Sharding::none && sharding != Sharding::fsdp) continue;  // not modelled
      TrainingSetup setup;
      setup.accumulate = accumulate;
      setup.steps = 30;
      setup.parallel.gpus = 4;
      setup.parallel.sharding = sharding;
      check_as_if_run(tape, setup);
    }
  TrainingSetup inference;
  inference.mode = Mode::inference;
  inference.steps = 30;
  check_as_if_run(tape, inference);
}

TEST_CASE("a stretch that leaves something behind is not recorded once more") {
  Schedule s;
  const auto stretch = [&](bool leaves) {
    const RecordMark begin = end_of(s);
    s.ops.push_back({.first_event = static_cast<std::int32_t>(s.events.size())});
    const auto id = static_cast<std::int32_t>(s.allocations.size());
    s.allocations.push_back({.size = Bytes(512),
                             .born = static_cast<std::int32_t>(s.events.size()),
                             .op = static_cast<std::int32_t>(s.ops.size()) - 1});
    s.events.push_back({Event::Kind::alloc, id});
    if (leaves) return begin;
    s.allocations.back().died = static_cast<std::int32_t>(s.events.size());
    s.events.push_back({Event::Kind::free, id});
    return begin;
  };
  const RecordMark earlier = stretch(false), later = stretch(false);
  CHECK(is_repeated(s, earlier, later));
  repeat_stretch(s, later, 1);
  CHECK(s.allocations.back().died == static_cast<std::int32_t>(s.events.size()) - 1);
  CHECK(s.ops.back().step == 1);
  s = {};
  const RecordMark leaving = stretch(true), again = stretch(true);
  CHECK(!is_repeated(s, leaving, again));
}
