#include <doctest/doctest.h>

#include "estimators/pipeline.h"
#include "estimators/strategies/checkpointing.h"
#include "estimators/tape/lifetimes.h"

using namespace memplan;

namespace {

// Activations are much larger than weights, so that the peak stands where the backward pass begins.
constexpr std::int64_t rows = 16384, width = 128, bytes = rows * width * 4;

/// `count` blocks of  x = gelu(linear(x)) twice,  each a module "blocks.<i>" with two children.
Tape blocks(int count) {
  Tape tape;
  auto scope = [&](std::string path, std::string module_class, std::int32_t parent) {
    Scope s;
    s.path = std::move(path);
    s.module_class = std::move(module_class);
    s.parent = parent;
    tape.scopes.push_back(s);
    return static_cast<std::int32_t>(tape.scopes.size() - 1);
  };
  auto value = [&](std::string name, ValueKind kind, std::vector<std::int64_t> sizes) {
    TapeValue v;
    v.name = std::move(name);
    v.kind = kind;
    v.sizes = std::move(sizes);
    v.requires_grad = kind == ValueKind::parameter;
    return tape.add_value(v);
  };
  auto call = [&](std::string op, std::vector<Arg> args, std::int32_t at) {
    Call c;
    c.op = std::move(op);
    c.args = std::move(args);
    c.scope = at;
    c.outputs = {value("v", ValueKind::computed, {})};
    tape.calls.push_back(c);
    return c.outputs[0];
  };
  const auto root = scope("", "Model", -1);
  ValueId x = value("x", ValueKind::user_input, {rows, width});
  tape.inputs = {x};
  for (int b = 0; b < count; ++b) {
    const auto block = scope("blocks." + std::to_string(b), "Block", root);
    for (int l = 0; l < 2; ++l) {
      const auto layer = scope("blocks." + std::to_string(b) + ".fc" + std::to_string(l), "Linear", block);
      const ValueId w = value("w", ValueKind::parameter, {width, width});
      tape.parameters.push_back(w);
      x = call("aten::gelu", {{call("aten::linear", {{x}, {w}}, layer)}}, block);
    }
  }
  tape.outputs = {x};
  mark_last_uses(tape);
  return tape;
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
