#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include "estimators/base/threads.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/torch/step/pipeline_steps.h"
#include "estimators/transforms/pipeline_parallel.h"
#include "planner/cost/profile.h"
#include "rank_states.h"
#include "tape_builder.h"

using namespace memplan;
using memplan::testing::states;

namespace {

ParallelSetup spread(std::int64_t data, Sharding sharding) {
  ParallelSetup p;
  p.data = data;
  p.sharding = sharding;
  return resolve(p);
}

std::int64_t requested(const Tape& tape, const TrainingSetup& setup) {
  return unwrap(estimate_tape(tape, setup, Device{})).peak.requested.count;
}

}  // namespace

TEST_CASE(
    "Megatron-LM's distributed optimizer holds 6 + 12 / d bytes per parameter, 4 + 12 / d in float16 and 8 + 8 / d in "
    "fp32 (its documentation)") {
  const Tape tape = testing::two_layer_tape(4, 1, 4096);
  const double parameters = 8.0 * 4096 * 4096;
  TrainingSetup setup;
  setup.steps = 2;
  setup.loss = Loss::sum;
  const auto per_parameter = [&](Precision precision, Sharding way, std::int64_t ranks) {
    setup.precision = precision;
    setup.parallel = spread(ranks, way);
    return states(tape, setup) / parameters;
  };
  for (const auto& [count, bytes] : {std::pair{1, 18.0}, std::pair{8, 7.5}, std::pair{64, 6.1875}}) {
    const int ranks = count;  // clang 14 captures no names of a structured binding
    CAPTURE(ranks);
    CHECK(per_parameter(Precision::bf16, Sharding::megatron_dist, ranks) == doctest::Approx(bytes).epsilon(1e-4));
    CHECK(per_parameter(Precision::bf16, Sharding::megatron, ranks) == doctest::Approx(18).epsilon(1e-4));
    CHECK(per_parameter(Precision::fp32, Sharding::megatron_dist, ranks) ==
          doctest::Approx(8 + 8.0 / ranks).epsilon(1e-4));
    CHECK(per_parameter(Precision::fp32, Sharding::megatron, ranks) == doctest::Approx(16).epsilon(1e-4));
    // The table's 4 + 16 / d and 20 count fp32 copies of the gradients, which are made when the optimizer steps.
    CHECK(per_parameter(Precision::fp16, Sharding::megatron_dist, ranks) ==
          doctest::Approx(4 + 12.0 / ranks).epsilon(1e-4));
    CHECK(per_parameter(Precision::fp16, Sharding::megatron, ranks) == doctest::Approx(16).epsilon(1e-4));
  }
  setup.precision = Precision::fp16;
  for (const auto& [ranks, bytes] : {std::pair{1, 20.0}, std::pair{8, 6.0}}) {
    setup.parallel = spread(ranks, Sharding::megatron_dist);
    const Bytes peak = requested_peak(unwrap(run_steps(tape, setup, Device{})), Phase::optimizer);
    CHECK(static_cast<double>(peak.count) / parameters == doctest::Approx(bytes).epsilon(1e-3));
  }
}

TEST_CASE(
    "Megatron-LM's gradients of a micro-batch lie beside the buffer one at a time; more micro-batches take nothing") {
  const Tape tape = testing::two_layer_tape(16, 1, 2048);
  TrainingSetup setup;
  setup.precision = Precision::bf16;
  setup.loss = Loss::sum;
  setup.parallel = spread(64, Sharding::megatron_dist);
  const double parameters = 32.0 * 2048 * 2048, matrix = 2.0 * 2048 * 2048;
  const auto peak = [&](Phase phase) {
    return static_cast<double>(requested_peak(unwrap(run_steps(tape, setup, Device{})), phase).count);
  };
  const double states = (6 + 12.0 / 64) * parameters, once = peak(Phase::backward);
  CHECK(once > states + matrix);
  CHECK(once < states + 3 * matrix);
  setup.accumulate = 4;
  CHECK(peak(Phase::backward) <= once + 4096);
  // While the buffers are filled the model's first weights are still there.
  CHECK(peak(Phase::setup) == doctest::Approx((2 + 2 + 4) * parameters).epsilon(1e-3));
  setup.optimizer.kind = OptimizerKind::muon;
  CHECK_FALSE(run_steps(tape, setup, Device{}).ok());
  setup.optimizer.kind = OptimizerKind::adamw;
  setup.precision = Precision::amp_bf16;
  CHECK_FALSE(run_steps(tape, setup, Device{}).ok());
}

TEST_CASE("FSDP's states are those of the whole model divided by the ranks: 16 bytes per parameter in fp32 with Adam") {
  const Tape tape = testing::two_layer_tape(16, 1, 15811);  // 8.0e9 parameters
  TrainingSetup setup;
  setup.steps = 2;
  setup.loss = Loss::sum;
  for (const auto& [ranks, gib] : {std::pair{8, 14.90}, std::pair{128, 0.93}}) {
    setup.parallel = spread(ranks, Sharding::fsdp);
    CHECK(states(tape, setup) / 0x1p30 == doctest::Approx(gib).epsilon(0.01));
  }
}

TEST_CASE("FSDP needs no more than DDP, more ranks no more than fewer, resharding no more than keeping") {
  const Tape tape = testing::two_layer_tape(8, 256, 512);
  TrainingSetup setup;
  setup.loss = Loss::sum;
  setup.parallel = spread(8, Sharding::none);
  const std::int64_t ddp = requested(tape, setup);
  std::int64_t before = ddp;
  for (std::int64_t ranks : {2, 4, 8, 16}) {
    setup.parallel = spread(ranks, Sharding::fsdp);
    const std::int64_t now = requested(tape, setup);
    CHECK(now <= before);
    before = now;
  }
  setup.parallel.reshard_after_forward = false;
  CHECK(requested(tape, setup) >= before);
  setup.parallel = spread(8, Sharding::none);
  setup.parallel.gradient_as_bucket_view = true;
  CHECK(requested(tape, setup) <= ddp);
}

// torch/nn/parallel/distributed.py, bucket_bytes_cap_default: [1 MiB, 25 MiB] where bucket_cap_mb is left out, [25 MiB]
// where it is 25.
TEST_CASE("DDP's first bucket is a small one only where the program leaves the cap out") {
  const Tape tape = testing::two_layer_tape(1, 4, 512);  // two weights of 1 MiB each
  TrainingSetup setup;
  setup.loss = Loss::sum;
  setup.parallel = spread(8, Sharding::none);
  const auto has_second_bucket = [&] {
    const Schedule s = unwrap(run_steps(tape, setup, Device{}));
    return std::any_of(s.allocations.begin(), s.allocations.end(), [&](const Allocation& a) {
      return a.label >= 0 && s.names[static_cast<std::size_t>(a.label)] == "DDP bucket 1";
    });
  };
  CHECK(has_second_bucket());
  setup.parallel.bucket_cap_mib = 25;
  CHECK_FALSE(has_second_bucket());
}

TEST_CASE("micro-batches in flight: 1F1B with 4 stages (Megatron's warm-up)") {
  ParallelSetup p;
  p.pipeline = 4;
  p.micro_batches = 8;
  p = resolve(p);
  const std::int64_t eight[] = {4, 3, 2, 1}, two[] = {2, 2, 2, 1};
  for (std::int64_t rank = 0; rank < 4; ++rank) CHECK(most_in_flight(actions_of(p, rank)) == eight[rank]);
  p.micro_batches = 2;
  for (std::int64_t rank = 0; rank < 4; ++rank) CHECK(most_in_flight(actions_of(p, rank)) == two[rank]);
  p.schedule = PipelineSchedule::gpipe;
  p.micro_batches = 8;
  for (std::int64_t rank = 0; rank < 4; ++rank) CHECK(most_in_flight(actions_of(p, rank)) == 8);
}

TEST_CASE("micro-batches in flight: interleaved with 8 ranks and 3 chunks") {
  ParallelSetup p;
  p.pipeline = 8;
  p.virtual_stages = 3;
  p.schedule = PipelineSchedule::interleaved;
  p.micro_batches = 32;
  p = resolve(p);
  // 2(p - r - 1) + (v - 1)p + 1 chunks of a third of a stage.
  CHECK(most_in_flight(actions_of(p, 0)) == 31);
  CHECK(most_in_flight(actions_of(p, 1)) == 29);
  CHECK(most_in_flight(actions_of(p, 7)) == 17);
}

TEST_CASE("every micro-batch goes forward and backward once through each chunk, forward first") {
  for (auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
                        PipelineSchedule::zero_bubble, PipelineSchedule::zbv}) {
    ParallelSetup p;
    p.pipeline = 4;
    p.micro_batches = 8;
    p.schedule = schedule;
    if (schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zbv) p.virtual_stages = 2;
    p = resolve(p);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      std::vector<int> state(static_cast<std::size_t>(p.virtual_stages * 8), 0);
      for (const Action& a : actions_of(p, rank)) {
        int& s = state[static_cast<std::size_t>(a.chunk * 8 + a.micro_batch)];
        // A backward pass in two parts counts as one for each; forward, inputs, weights.
        CHECK(s == (a.forward ? 0 : a.part == BackwardPart::weights ? 2 : 1));
        s += a.part == BackwardPart::whole && !a.forward ? 2 : 1;
      }
      for (int s : state) CHECK(s == 3);
    }
  }
}

/// "0F1": forward of micro-batch 1 through the rank's first chunk; I and W are the two parts of the backward pass.
std::string order_of(PipelineSchedule schedule, std::int64_t ranks, std::int64_t chunks, std::int64_t micro_batches,
                     std::int64_t rank) {
  ParallelSetup p;
  p.pipeline = ranks;
  p.virtual_stages = chunks;
  p.schedule = schedule;
  p.micro_batches = micro_batches;
  std::string text;
  for (const Action& a : actions_of(resolve(p), rank))
    text += (text.empty() ? "" : " ") + std::to_string(a.chunk) +
            (a.forward                        ? "F"
             : a.part == BackwardPart::inputs ? "I"
                                              : "W") +
            std::to_string(a.micro_batch);
  return text;
}

TEST_CASE("zero-bubble schedules run in PyTorch's order (pipeline_order of the schedules' objects, torch 2.11)") {
  CHECK(order_of(PipelineSchedule::zero_bubble, 4, 1, 8, 0).substr(0, 27) == "0F0 0F1 0F2 0F3 0I0 0W0 0F4");
  CHECK(order_of(PipelineSchedule::zero_bubble, 4, 1, 6, 1) ==
        "0F0 0F1 0F2 0I0 0F3 0I1 0W0 0F4 0I2 0W1 0F5 0I3 0W2 0I4 0W3 0I5 0W4 0W5");
  CHECK(order_of(PipelineSchedule::zero_bubble, 2, 2, 4, 1) ==
        "0F0 0F1 1F0 1I0 1F1 1I1 1W0 0F2 0I0 1W1 0F3 0I1 0W0 1F2 1I2 0W1 1F3 1I3 1W2 0I2 1W3 0I3 0W2 0W3");
  CHECK(order_of(PipelineSchedule::zbv, 2, 2, 4, 1) ==
        "0F0 1F0 0F1 1F1 1I0 1W0 0F2 0I0 0W0 1F2 1I1 1W1 0F3 0I1 0W1 1F3 1I2 1W2 0I2 1I3 0I3 0W2 1W3 0W3");
  CHECK(order_of(PipelineSchedule::zbv, 4, 2, 3, 2) ==
        "0F0 0F1 0F2 1F0 1F1 1F2 1I0 1W0 1I1 1W1 0I0 0W0 1I2 1W2 0I1 0W1 0I2 0W2");
}

TEST_CASE("stages of the user's lengths") {
  const Tape tape = testing::two_layer_tape(7, 4, 16);
  ParallelSetup p;
  p.pipeline = 3;
  p.split = {1, 4, 2};
  const auto stages = cut_stages(tape, resolve(p));
  const Tape one = testing::two_layer_tape(1, 4, 16);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(stages[i].tape.parameters.size() == static_cast<std::size_t>(p.split[i]) * one.parameters.size());
  p.split = {1, 4, 3};
  CHECK_THROWS_AS(cut_stages(tape, resolve(p)), Failure);
}

TEST_CASE("stages hold every parameter once and pass on what crosses the cut") {
  const Tape tape = testing::two_layer_tape(7, 4, 16);
  ParallelSetup p;
  p.pipeline = 3;
  p = resolve(p);
  CHECK(blocks_per_stage(7, p) == std::vector<std::int64_t>{3, 2, 2});
  const auto stages = cut_stages(tape, p);
  std::size_t parameters = 0, calls = 0;
  for (const Stage& s : stages) parameters += s.tape.parameters.size(), calls += s.tape.calls.size();
  CHECK(parameters == tape.parameters.size());
  CHECK(calls == tape.calls.size());
  CHECK(stages[0].received.empty());
  CHECK(stages[0].sent == stages[1].received);
  CHECK(stages[1].sent == stages[2].received);
  CHECK(stages[2].sent.empty());
}

TEST_CASE("a pipeline's estimate is that of its heaviest rank") {
  const Tape tape = testing::two_layer_tape(8, 256, 512);
  TrainingSetup setup;
  setup.loss = Loss::sum;
  const std::int64_t one = requested(tape, setup);
  setup.parallel.pipeline = 4;
  setup.parallel = resolve(setup.parallel);
  const Estimate e = unwrap(estimate_tape(tape, setup, Device{}));
  REQUIRE(e.ranks.size() == 3);
  std::int64_t gpus = 0;
  for (const RankClass& c : e.ranks) {
    gpus += c.gpus;
    CHECK(c.peak.process <= e.peak.process);
  }
  CHECK(gpus == 4);
  CHECK(e.peak.requested.count < one * 4);
  setup.parallel.pipeline = 9;
  setup.parallel.gpus = setup.parallel.micro_batches = 0;
  setup.parallel.data = 1;
  const auto refused = estimate_tape(tape, setup, Device{});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::usage);
  CHECK(refused.error().what.find("the model has 8") != std::string::npos);
}

TEST_CASE("stages exchange what FSDP's dtype makes, not what the shards are in") {
  const Tape tape = testing::two_layer_tape(4, 8, 16);
  TrainingSetup setup;
  setup.loss = Loss::sum;
  setup.parallel.pipeline = 2;
  setup.parallel.data = 2;
  setup.parallel.sharding = Sharding::fsdp;
  const auto sent = [&] {
    return pipeline_shapes(tape, setup, resolve(setup.parallel), Device{})
        .shapes.at(cut_stages(tape, resolve(setup.parallel))[0].sent.at(0))
        .dtype;
  };
  CHECK(sent() == DType::float32);
  setup.parallel.param_dtype = DType::bfloat16;
  CHECK(sent() == DType::bfloat16);
}

TEST_CASE("estimates at the same time are those made one after another") {
  const Tape tape = testing::two_layer_tape(6, 64, 32);
  TrainingSetup setups[8];
  std::int64_t alone[8], together[8];
  for (int i = 0; i < 8; ++i) {
    setups[i].loss = Loss::sum;
    if (i % 2 == 1)
      setups[i].parallel.pipeline = 2 + i / 2;
    else
      setups[i].accumulate = 1 + i / 2;
    setups[i].parallel = resolve(setups[i].parallel);
    alone[i] = requested(tape, setups[i]);
  }
  in_parallel(
      8, [&](std::size_t i) { together[i] = unwrap(estimate_tape(tape, setups[i], Device{})).peak.requested.count; });
  for (int i = 0; i < 8; ++i) CHECK(together[i] == alone[i]);
}

TEST_CASE("of what several parts throw the first by number is thrown, when all have ended") {
  std::atomic<int> ended{0};
  try {
    in_parallel(16, [&](std::size_t i) {
      ++ended;
      if (i % 2 == 1) fail(ErrorKind::usage, std::to_string(i));
    });
    FAIL("nothing was thrown");
  } catch (const Failure& f) {
    CHECK(f.error().what == "1");
  }
  CHECK(ended == 16);
}
