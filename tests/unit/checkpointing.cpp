#include <doctest/doctest.h>

#include "estimators/pipeline.h"
#include "estimators/strategies/checkpointing.h"
#include "estimators/tape/lifetimes.h"
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
