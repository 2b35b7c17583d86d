#include "estimators/transforms/checkpointing.h"

#include <doctest/doctest.h>

#include <map>
#include <tuple>

#include "estimators/pipeline.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/transforms/nested_checkpointing.h"
#include "tape_builder.h"

using namespace memplan;

namespace {

// Activations are much larger than weights, so that the peak stands where the backward pass begins.
constexpr std::int64_t rows = 16384, width = 128, bytes = rows * width * 4;

/// `count` blocks of  x = gelu(linear(x)) twice,  each a module "blocks.<i>" with two children.
Tape blocks(int count) {
  testing::TapeBuilder b;
  const auto root = b.scope("", "Model", -1);
  b.input({rows, width});
  for (int i = 0; i < count; ++i) {
    const std::string path = "blocks." + std::to_string(i);
    const auto block = b.scope(path, "Block", root);
    for (const char* layer : {".fc0", ".fc1"}) {
      b.linear(path + layer, width, block);
      b.gelu(block);
    }
  }
  b.tape.outputs = {b.x};
  mark_last_uses(b.tape);
  return std::move(b.tape);
}

std::int64_t requested_peak(const Tape& tape) {
  TrainingSetup setup;
  setup.optimizer.kind = OptimizerKind::none;
  setup.loss = Loss::sum;
  const Device device = choose_device("h100-80gb").device;
  const auto schedule = run_steps(tape, setup, device);
  REQUIRE(schedule.ok());
  std::int64_t current = 0, peak = 0;
  for (const Event& e : schedule->events) {
    const std::int64_t n = schedule->allocations[static_cast<std::size_t>(e.allocation)].size.count;
    current += e.kind == Event::Kind::alloc ? n : -n;
    peak = std::max(peak, current);
  }
  return peak;
}

}  // namespace

TEST_CASE("blocks are found by their paths, and named ones by a glob") {
  Tape tape = blocks(3);
  checkpoint_modules(tape, {"blocks"});
  REQUIRE(tape.checkpoints.size() == 3);
  CHECK(tape.checkpoints[1].first == 4);
  CHECK(tape.checkpoints[1].last == 7);
  checkpoint_modules(tape, {"blocks.2", "blocks.2.fc0"});
  REQUIRE(tape.checkpoints.size() == 1);  // the inner module is inside of a marked one
  CHECK(tape.checkpoints[0].first == 8);
  checkpoint_modules(tape, {});
  CHECK(tape.checkpoints.empty());
  CHECK_THROWS_AS(checkpoint_modules(tape, {"layers.*"}), Failure);
}

TEST_CASE("checkpointed blocks keep their inputs only") {
  // Without: per layer the input of linear and that of gelu. With: per block its input, and one block recomputed.
  for (int count : {4, 8}) {
    Tape plain = blocks(count), marked = blocks(count);
    checkpoint_modules(marked, {"blocks"});
    const std::int64_t saved = requested_peak(plain) - requested_peak(marked);
    // 4 tensors per block against 1; the block under recomputation holds its own again.
    CHECK(saved >= (count - 2) * 3 * bytes);
    CHECK(saved <= count * 3 * bytes);
  }
}

TEST_CASE("checkpointing every block adds memory by one tensor per further block") {
  Tape eight = blocks(8), nine = blocks(9);
  checkpoint_modules(eight, {"blocks"});
  checkpoint_modules(nine, {"blocks"});
  // Its input and its two weights; no gradient is there yet when the last block is recomputed.
  CHECK(requested_peak(nine) - requested_peak(eight) == bytes + 2 * width * width * 4);
}

TEST_CASE("Revolve's figures: repetitions and steps that run once more") {
  // Griewank and Walther, ACM TOMS 26(1), 2000: the smallest r with binom(n + r, n) >= l, t = r l - binom(n + r, n +
  // 1).
  struct Published {
    std::int64_t steps, states, repetitions, advances;
  };
  for (const Published& p :
       {Published{32, 3, 4, 93}, {32, 5, 3, 68}, {32, 8, 2, 54}, {80, 5, 4, 236}, {80, 9, 3, 174}, {128, 11, 3, 293}}) {
    const RevolveCost cost = revolve_cost(p.steps, p.states);
    CHECK(cost.repetitions == p.repetitions);
    CHECK(cost.advances == p.advances);
  }
  // The recursion that the closed form solves, step by step.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> least;
  for (std::int64_t l = 1; l <= 24; ++l)
    for (std::int64_t n = 1; n <= 8; ++n) {
      std::int64_t best = l == 1 ? 0 : l * (l - 1) / 2;
      for (std::int64_t m = 1; n > 1 && m < l; ++m)
        best = std::min(best, m + least.at({l - m, n - 1}) + least.at({m, n}));
      least[{l, n}] = best;
      CHECK(revolve_cost(l, n).advances == best);
    }
}

namespace {

/// How often each block's first call runs in one step, also while stretches run again.
struct BlockRuns : CallObserver {
  std::map<std::size_t, std::int64_t> runs;
  void before(Run&, std::size_t call, const std::vector<Value>&,
              const std::vector<std::pair<std::string, Value>>&) override {
    ++runs[call];
  }
  void after(Run&, std::size_t, const ValueList&) override {}
};

/// How many activations that many bytes are, but for gradients of weights (64 KiB each, an activation has 8 MiB).
std::int64_t tensors(std::int64_t count) { return (count + bytes / 2) / bytes; }

}  // namespace

TEST_CASE("nested stretches run as often as Revolve says, and store as many inputs") {
  std::map<std::int64_t, std::int64_t> peaks;
  for (const auto& [blocks_of_list, states, advances] :
       {std::tuple{32, 3, 93}, {32, 5, 68}, {32, 8, 54}, {80, 5, 236}, {80, 9, 174}, {128, 11, 293}}) {
    const int steps = blocks_of_list;  // clang 14 captures no structured binding
    Tape tape = blocks(steps);
    tape.checkpoints = revolve_stretches(lists_of_blocks(tape).front(), states, false);
    CHECK(nests(tape));
    const auto runs_of = [&](std::int64_t training_steps) {
      TrainingSetup setup;
      setup.optimizer.kind = OptimizerKind::none;
      setup.loss = Loss::sum;
      setup.steps = training_steps;
      BlockRuns counted;
      REQUIRE(
          run_steps_observed(tape, setup, resolve(setup.parallel), choose_device("h100-80gb").device, &counted).ok());
      std::int64_t runs = 0;
      for (int b = 0; b < steps; ++b) runs += counted.runs.at(static_cast<std::size_t>(b) * 4);
      return runs;
    };
    // One step more, since the first is begun twice: its forward pass tells the shape of the target.
    CHECK(runs_of(2) - runs_of(1) == steps + advances);
    if (steps == 32) peaks[states] = requested_peak(tape);
  }
  // The first input is the batch, which lives anyway; the others are one tensor each. More are stored at the same place
  // of the backward pass, or earlier in it, where gradients of the small weights are not there yet.
  CHECK(tensors(peaks.at(5) - peaks.at(3)) == 2);
  CHECK(tensors(peaks.at(8) - peaks.at(5)) == 3);
}

TEST_CASE("stretches inside of stretches are named in words, and read again from them") {
  Tape tape = blocks(7);
  checkpoint_modules(tape, {"groups:3/blocks"});
  CHECK(checkpoint_words(tape) ==
        std::vector<std::string>{"(blocks.0)+(blocks.1)+(blocks.2)", "(blocks.3)+(blocks.4)+(blocks.5)", "blocks.6"});
  const auto marked = tape.checkpoints;
  checkpoint_modules(tape, {"(blocks.0)+(blocks.1)+(blocks.2)", "(blocks.3)+(blocks.4)+(blocks.5)", "blocks.6"});
  REQUIRE(tape.checkpoints.size() == marked.size());
  for (std::size_t i = 0; i < marked.size(); ++i) {
    CHECK(tape.checkpoints[i].first == marked[i].first);
    CHECK(tape.checkpoints[i].last == marked[i].last);
  }
  checkpoint_modules(tape, {"groups:4/groups:2/blocks"});
  CHECK(checkpoint_words(tape).front() == "((blocks.0)+(blocks.1))+((blocks.2)+(blocks.3))");
  checkpoint_modules(tape, {"((blocks.0)+blocks.1)+blocks.2"});
  CHECK(checkpoint_words(tape) == std::vector<std::string>{"((blocks.0)+blocks.1)+blocks.2"});
  for (const char* wrong : {"groups:2/groups:2", "groups:2/groups:3", "groups:4/every:2", "(blocks.0)+(blocks.2)",
                            "(blocks.0", "blocks.0)+blocks.1", "()+blocks.0"})
    CHECK_THROWS_AS(checkpoint_modules(tape, {wrong}), Failure);
  checkpoint_modules(tape, {"blocks"});
  CHECK_FALSE(nests(tape));
}

TEST_CASE("blocks inside of checkpointed groups keep the groups' inputs and one group's blocks' inputs") {
  Tape flat = blocks(16), nested = blocks(16);
  checkpoint_modules(flat, {"blocks"});
  checkpoint_modules(nested, {"groups:4/blocks"});
  // 16 inputs against 4 of groups and 4 of the blocks of one, whose first is the group's; the batch is one of them in
  // both.
  CHECK(tensors(requested_peak(flat) - requested_peak(nested)) == 16 - 7);
}

TEST_CASE("what the allocator holds repeats itself long before the last micro-batch that is replayed") {
  const Tape tape = blocks(3);
  TrainingSetup setup;
  setup.loss = Loss::sum;
  setup.steps = 1;
  const Device device = choose_device("h100-80gb").device;
  setup.accumulate = 1'000'000'000'000;
  REQUIRE(micro_batches_run(setup) == 8);
  setup.accumulate = 9;  // the most that are all replayed
  const auto schedule = run_steps(tape, setup, device);
  REQUIRE(schedule.ok());
  const auto timeline = replay_unlimited(*schedule, setup, device);
  REQUIRE(timeline.ok());
  // Each micro-batch begins where the batch moves to the device; the addresses that it gets are those of the one
  // before.
  std::vector<std::vector<std::uint64_t>> addresses;
  std::size_t op = 0;
  std::vector<bool> begins(schedule->events.size() + 1, false);
  for (const OpRecord& o : schedule->ops)
    if (o.phase == Phase::data && schedule->names[static_cast<std::size_t>(o.name)] == "batch.to")
      begins[static_cast<std::size_t>(o.first_event)] = true;
  for (std::size_t i = 0; i < schedule->events.size(); ++i) {
    if (begins[i]) addresses.emplace_back();
    const Event& e = schedule->events[i];
    while (op + 1 < schedule->ops.size() && static_cast<std::size_t>(schedule->ops[op + 1].first_event) <= i) ++op;
    if (addresses.empty() || schedule->ops[op].phase > Phase::backward) continue;
    if (e.kind == Event::Kind::alloc)
      addresses.back().push_back(timeline->addresses[static_cast<std::size_t>(e.allocation)]);
  }
  REQUIRE(addresses.size() == 9);
  CHECK(addresses[8] == addresses[6]);  // a batch comes before the last one goes
}

TEST_CASE("a run of more events than the limit is refused, and says which limit") {
  const Tape tape = blocks(1);
  TrainingSetup setup;
  setup.loss = Loss::sum;
  setup.steps = 10'000'000;
  setup.keep_loss_history = true;
  const auto schedule = run_steps(tape, setup, choose_device("h100-80gb").device);
  REQUIRE_FALSE(schedule.ok());
  CHECK(schedule.error().kind == ErrorKind::input);
  CHECK(schedule.error().what.find("limit of events") != std::string::npos);
}

// torch/csrc/autograd/functions/tensor.cpp, CopySlices::apply: the base's gradient and a copy of the view's part are
// there before the op's own node unpacks what it saved, and with it runs the stretch again.
TEST_CASE("a stretch that a write into a view ends runs again beside the copies of the gradient") {
  const auto live_when_run_again = [](const char* op) {
    testing::TapeBuilder b;
    const auto root = b.scope("", "Model", -1);
    b.input({rows, width});
    b.linear("fc", width, root);
    CheckpointRegion region;
    region.first = static_cast<std::int32_t>(b.tape.calls.size());
    b.gelu(root);
    b.x = b.call("aten::view", {{b.x}, {Arg::List{{rows / 2}, {2 * width}}}}, root);
    b.x = b.call(op, {{b.x}}, root);
    region.last = static_cast<std::int32_t>(b.tape.calls.size()) - 1;
    b.tape.checkpoints.push_back(region);
    b.tape.outputs = {b.x};
    mark_last_uses(b.tape);
    TrainingSetup setup;
    setup.optimizer.kind = OptimizerKind::none;
    setup.loss = Loss::sum;
    const auto schedule = run_steps(b.tape, setup, choose_device("h100-80gb").device);
    REQUIRE(schedule.ok());
    std::int64_t live = 0;
    for (const Event& e : schedule->events) {
      const Allocation& a = schedule->allocations[static_cast<std::size_t>(e.allocation)];
      const OpRecord& made_by = schedule->ops[static_cast<std::size_t>(a.op)];
      if (e.kind == Event::Kind::alloc && made_by.phase == Phase::backward && made_by.call == region.first) return live;
      live += e.kind == Event::Kind::alloc ? a.size.count : -a.size.count;
    }
    return std::int64_t{-1};
  };
  // The third is what AsStridedBackward, the view's own node, has made.
  CHECK(live_when_run_again("aten::leaky_relu_") - live_when_run_again("aten::leaky_relu") == 3 * bytes);
}
