// Linears in 8 bits, against what Transformer Engine's source says of each tensor.
#include "estimators/transforms/fp8.h"

#include <doctest/doctest.h>

#include "estimators/pipeline.h"
#include "estimators/transforms/transforms.h"
#include "planner/cost/profile.h"
#include "rank_states.h"
#include "tape_builder.h"

using namespace memplan;

namespace {

constexpr std::int64_t rows = 64, width = 256, weights = width * width;

Tape blocks(int count, std::int64_t tokens = rows, std::int64_t wide = width) {
  return testing::two_layer_tape(count, tokens, wide);
}

TrainingSetup eight(Fp8 how = Fp8::cached) {
  TrainingSetup setup;
  setup.precision = Precision::bf16;
  setup.fp8 = how;
  setup.loss = Loss::sum;
  return setup;
}

Device card(const char* name) { return choose_device(name).device; }

template <class T>
T value(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? std::string() : result.error().what));
  return std::move(result.value());
}

/// Bytes of what modules keep besides their parameters.
std::int64_t copies(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  const Schedule s = value(run_steps(value(tape_of_rank(tape, setup)), setup, device));
  std::int64_t bytes = 0;
  for (const Allocation& a : s.allocations)
    if (a.category == Category::buffer) {
      bytes += a.size.count;
      CHECK(a.died < 0);
    }
  return bytes;
}

double kept_per_block(const TrainingSetup& setup, const Device& device) {
  double kept[2];
  for (int i = 0; i < 2; ++i)
    kept[i] = value(profile(value(tape_of_rank(blocks(2 + i), setup)), setup, device)).turn.front();
  return kept[1] - kept[0];
}

std::string refusal(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  const Result<Tape> rank = tape_of_rank(tape, setup);
  if (!rank) return rank.error().what;
  const Result<Schedule> s = run_steps(*rank, setup, device);
  return s ? std::string() : s.error().what;
}

}  // namespace

TEST_CASE("copies of the weights in 8 bits lie beside those of 16, two of them where products have one layout") {
  // Eight layers; the last one stays as it is. Each of the others has the histories of 3 tensors forward and 2
  // backward, 1024 figures each, their scales, and the inverse of the weight's scale.
  constexpr std::int64_t layers = 7, meta = (1024 + 1) * 5 * 4 + 4;
  const Tape tape = blocks(4);
  CHECK(copies(tape, eight(), card("b200")) == layers * (meta + weights));
  // The first layer's input wants no gradient, so nothing reads its weight the other way.
  for (const char* name : {"h100-80gb", "l40s"})
    CHECK(copies(tape, eight(), card(name)) == layers * (meta + weights) + (layers - 1) * weights);
  TrainingSetup forward = eight();
  forward.mode = Mode::inference;
  CHECK(copies(tape, forward, card("h100-80gb")) == layers * (meta + weights));
  TrainingSetup plain = eight(Fp8::none);
  CHECK(copies(tape, plain, card("h100-80gb")) == 0);
}

TEST_CASE("inputs of linears are kept in 8 bits, everything else in 16") {
  // Of a block: the inputs of two linears and that of the activation between them, and the inverse of two scales.
  for (const char* name : {"h100-80gb", "b200"}) {
    CHECK(kept_per_block(eight(Fp8::none), card(name)) == rows * width * (2 + 2 + 2));
    CHECK(kept_per_block(eight(), card(name)) == rows * width * (1 + 2 + 1) + 2 * 4);
  }
}

TEST_CASE("a model that is mostly weights needs more in 8 bits than in 16") {
  const Tape tape = blocks(8, 8, 2048);
  const double parameters = 16.0 * 2048 * 2048;
  const auto peak = [&](Fp8 how, const char* name) {
    const TrainingSetup setup = eight(how);
    return static_cast<double>(
        value(estimate_tape(value(tape_of_rank(tape, setup)), setup, card(name))).peak.requested.count);
  };
  const double hopper = peak(Fp8::cached, "h100-80gb") - peak(Fp8::none, "h100-80gb"),
               blackwell = peak(Fp8::cached, "b200") - peak(Fp8::none, "b200");
  // 15 of 16 layers, 14 of them twice; Transformer Engine's workspace of 32 MiB beside PyTorch's.
  CHECK(hopper > 2 * 14.0 / 16 * parameters);
  CHECK(hopper < 2 * parameters + (40 << 20));
  CHECK(blackwell > 15.0 / 16 * parameters);
  CHECK(blackwell < parameters + (40 << 20));
}

TEST_CASE("weights of 8 bits under Megatron-LM's distributed optimizer: 1 byte per parameter instead of 2") {
  TrainingSetup setup = eight(Fp8::primary);
  setup.steps = 2;
  setup.parallel.data = 8;
  setup.parallel.sharding = Sharding::megatron_dist;
  setup.parallel = resolve(setup.parallel);
  double held[2];
  for (int i = 0; i < 2; ++i) held[i] = testing::states(value(tape_of_rank(blocks(4 + 4 * i), setup)), setup);
  CHECK((held[1] - held[0]) / (8.0 * weights) == doctest::Approx(1 + 4 + 12.0 / 8).epsilon(1e-3));
  CHECK(copies(blocks(4), setup, card("b200")) == 7 * ((1024 + 1) * 5 * 4 + 4));
  CHECK(copies(blocks(4), setup, card("h100-80gb")) == 7 * ((1024 + 1) * 5 * 4 + 4) + 6 * weights);
}

TEST_CASE("what 8 bits are not modelled with is refused") {
  const Device h100 = card("h100-80gb");
  CHECK(refusal(blocks(2), eight(), h100).empty());
  CHECK(refusal(blocks(2), eight(), card("a100-80gb")).find("no units for 8 bits") != std::string::npos);
  CHECK(refusal(blocks(2, 12), eight(), h100).find("multiples of 8 tokens") != std::string::npos);
  CHECK(refusal(blocks(2, rows, 40), eight(), h100).find("can run in 8 bits") != std::string::npos);
  CHECK(refusal(blocks(2), eight(Fp8::primary), h100).find("wider ones") != std::string::npos);
  TrainingSetup setup = eight();
  setup.precision = Precision::amp_bf16;
  CHECK(refusal(blocks(2), setup, h100).find("bfloat16") != std::string::npos);
  setup = eight();
  setup.lora = LoraSetup{};
  CHECK(refusal(blocks(2), setup, h100).find("adapters") != std::string::npos);
  setup = eight();
  setup.offload.activations = true;
  CHECK(refusal(blocks(2), setup, h100).find("offload") != std::string::npos);
  setup = eight();
  setup.parallel.data = 2;
  setup.parallel.sharding = Sharding::fsdp;
  setup.parallel = resolve(setup.parallel);
  CHECK(refusal(blocks(2), setup, h100).find("sharded weights") != std::string::npos);
}

TEST_CASE("checkpointed layers make their 8-bit inputs again and the copies of weights once") {
  TrainingSetup setup = eight();
  setup.checkpoint = {"blocks"};
  const Device h100 = card("h100-80gb");
  CHECK(copies(blocks(4), setup, h100) == copies(blocks(4), eight(), h100));
  CHECK(kept_per_block(setup, h100) == rows * width * 2);
}
