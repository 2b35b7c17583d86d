#include "estimators/runtime/torch/step/repetition.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "estimators/base/unwrap.h"
#include "estimators/runtime/torch/step/pipeline_steps.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/setup/names.h"
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

TEST_CASE("the third step is the second one whatever the optimizer keeps from the first") {
  const Tape tape = two_layer_tape(3, 64, 128);
  for (const auto& [name, choice, hidden] : optimizer_names)
    for (const OptimizerImpl impl : {OptimizerImpl::automatic, OptimizerImpl::foreach, OptimizerImpl::loop})
      for (const std::int64_t accumulate : {1, 3}) {
        if (choice.kind == OptimizerKind::muon && impl != OptimizerImpl::automatic) continue;  // PyTorch has one of it
        const std::string optimizer = name;
        CAPTURE(optimizer);
        TrainingSetup setup;
        setup.optimizer.kind = choice.kind;
        setup.optimizer.momentum = choice.momentum ? 0.9 : 0;
        setup.optimizer.amsgrad = choice.amsgrad;
        setup.optimizer.impl = impl;
        setup.accumulate = accumulate;
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

TEST_CASE("a pipeline rank's third step is the second one") {
  const Tape tape = two_layer_tape(8, 64, 128);
  const Device device = choose_device("h100-80gb").device;
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::interleaved,
        PipelineSchedule::zero_bubble, PipelineSchedule::zbv})
    for (const ZeroGrad zero_grad : {ZeroGrad::begin_set_none, ZeroGrad::end_set_none})
      for (const std::int64_t micro_batches : {4, 12}) {
        TrainingSetup setup;
        setup.loss = Loss::sum;
        setup.steps = 5;
        setup.zero_grad = zero_grad;
        setup.clip_grad_norm = micro_batches == 4;
        setup.parallel.gpus = setup.parallel.pipeline = 2;
        setup.parallel.schedule = schedule;
        if (schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zbv)
          setup.parallel.virtual_stages = 2;
        setup.parallel.micro_batches = micro_batches;
        const Ranks ranks = resolve(setup.parallel);
        setup.parallel = ranks;
        const PipelineShapes shapes = pipeline_shapes(tape, setup, ranks, device);
        for (const std::int64_t rank : {0, 1})
          check_same(run_pipeline_steps(tape, setup, ranks, device, rank, shapes),
                     run_pipeline_steps(tape, setup, ranks, device, rank, shapes, true));
      }
}

namespace {

/// Two steps of a program whose names keep their tensor until the next step binds them anew. `states`: what each step
/// makes for good.
struct TwoSteps {
  Schedule s;
  RecordMark first, second;
  std::int32_t held = -1;

  std::int32_t alloc(std::int64_t bytes) {
    s.ops.push_back({.first_event = static_cast<std::int32_t>(s.events.size())});
    const auto id = static_cast<std::int32_t>(s.allocations.size());
    s.allocations.push_back({.size = Bytes(bytes),
                             .born = static_cast<std::int32_t>(s.events.size()),
                             .op = static_cast<std::int32_t>(s.ops.size()) - 1});
    s.events.push_back({Event::Kind::alloc, id});
    return id;
  }
  void free(std::int32_t id) {
    s.allocations[static_cast<std::size_t>(id)].died = static_cast<std::int32_t>(s.events.size());
    s.events.push_back({Event::Kind::free, id});
  }
  void step(std::int64_t bytes, int states) {
    const std::int32_t fresh = alloc(bytes);
    if (held >= 0) free(held);
    held = fresh;
    for (int i = 0; i < states; ++i) alloc(64);
    free(alloc(32));
  }
  TwoSteps(std::int64_t second_bytes, int second_states) {
    first = end_of(s);
    step(512, 1);
    second = end_of(s);
    step(second_bytes, second_states);
  }
  std::optional<Carried> carried() const { return repeats_the_first(s, first, second); }
};

}  // namespace

TEST_CASE("a second step that makes nothing for good and leaves what the first one left comes again") {
  TwoSteps t(512, 0);
  const auto carried = t.carried();
  REQUIRE(carried);
  CHECK(*carried == Carried{{0, 3}});
  const std::size_t events = t.s.events.size();
  const RecordMark third = repeat_stretch(t.s, t.second, 1, *carried);
  CHECK(third.event == events);
  CHECK(t.s.allocations[3].died == static_cast<std::int32_t>(events) + 1);  // as the third one's takes its place
  CHECK(t.s.allocations[5].died < 0);
  CHECK(t.s.allocations[1].died < 0);   // the state
  CHECK(!TwoSteps(1024, 0).carried());  // asks for other bytes
  CHECK(!TwoSteps(512, 1).carried());   // makes a state, too: the next one may as well
  TwoSteps keeps(512, 0);
  keeps.alloc(512);  // stays, and the first step left no such thing
  CHECK(!keeps.carried());
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
