#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "estimators/base/error.h"
#include "estimators/pipeline.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/runtime/torch/step/kv_cache.h"
#include "estimators/setup/bitsandbytes.h"
#include "estimators/setup/setup.h"
#include "estimators/transforms/checkpointing.h"
#include "estimators/transforms/lora.h"
#include "planner/checkpointing/chain.h"
#include "planner/checkpointing/plan.h"
#include "tape_builder.h"

using namespace memplan;

namespace {

/// Blocks and a last Linear "head".
Tape blocks(int count, std::int64_t rows, std::int64_t width) {
  testing::TapeBuilder b = testing::two_layer_blocks(count, rows, width);
  b.linear("head", width, 0);
  b.tape.outputs = {b.x};
  return std::move(b.tape);
}

Tape with_lifetimes(Tape tape) {
  mark_last_uses(tape);
  return tape;
}

TrainingSetup summed() {
  TrainingSetup setup;
  setup.loss = Loss::sum;
  return setup;
}

Device device() { return choose_device("h100-80gb").device; }

std::int64_t allocated_peak(const Tape& tape, const TrainingSetup& setup) {
  const auto e = estimate_tape(tape, setup, device());
  REQUIRE(e.ok());
  return e->peak.allocated.count;
}

/// Every set of options that do not overlap, one after the other.
double brute_force(const ChainProblem& p, std::int64_t budget) {
  double best = std::numeric_limits<double>::infinity();
  for (std::uint32_t set = 0; set < 1u << p.options.size(); ++set) {
    std::int64_t kept = 0;
    double cost = 0;
    bool good = true;
    std::vector<bool> used(p.options.size(), false);
    for (std::size_t u = 0; good && u < p.units.size();) {
      const ChainOption* taken = nullptr;
      for (std::size_t o = 0; o < p.options.size(); ++o)
        if ((set >> o & 1) && p.options[o].first == static_cast<std::int32_t>(u)) {
          good = good && !taken;
          taken = &p.options[o];
          used[o] = true;
        }
      const std::int64_t need = taken ? taken->need : p.units[u].need;
      good = good && kept + need <= budget;
      kept += taken ? taken->kept : p.units[u].kept;
      cost += taken ? taken->cost : 0;
      u = taken ? static_cast<std::size_t>(taken->last) + 1 : u + 1;
    }
    for (std::size_t o = 0; o < p.options.size(); ++o) good = good && (!(set >> o & 1) || used[o]);
    if (good) best = std::min(best, cost);
  }
  return best;
}

}  // namespace

TEST_CASE("the cheapest stretches are those of a search through all choices") {
  std::mt19937 random(1);
  auto number = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int feasible = 0, with_options = 0;
  for (int round = 0; round < 400; ++round) {
    ChainProblem p;
    const int units = number(2, 7);
    for (int u = 0; u < units; ++u) p.units.push_back({number(1, 40), number(1, 60)});
    for (int o = number(1, 9); o > 0; --o) {
      const int first = number(0, units - 1), last = number(first, units - 1);
      p.options.push_back({first, last, number(0, 20), number(1, 90), static_cast<double>(number(1, 30))});
    }
    for (std::int64_t budget : {60, 90, 130, 200}) {
      const double best = brute_force(p, budget);
      const ChainChoice choice = choose_stretches(p, budget);
      CHECK(choice.feasible == std::isfinite(best));
      if (!choice.feasible) continue;
      CHECK(choice.cost == best);
      CHECK(choice.lower_bound == best);
      ++feasible;
      with_options += !choice.options.empty();
      CHECK(budget_of(p, choice.options) <= budget);
      // Rounded to a coarse grid it may cost more, never less, and says how much less would be possible at best.
      const ChainChoice coarse = choose_stretches(p, budget, 4);
      if (coarse.feasible) CHECK(coarse.cost >= best);
      CHECK(coarse.lower_bound <= best);
    }
    const std::int64_t least = least_budget(p);
    CHECK(std::isfinite(brute_force(p, least)));
    CHECK(budget_of(p, choose_stretches(p, least).options) == least);
    CHECK_FALSE(std::isfinite(brute_force(p, least - 1)));
  }
  CHECK(feasible > 400);
  CHECK(with_options > 100);
}

TEST_CASE("a plan of units of an exbibyte each needs more than any device has") {
  ChainProblem p;
  for (int u = 0; u < 20; ++u) p.units.push_back({std::int64_t{1} << 60, std::int64_t{1} << 60});
  CHECK(least_budget(p) == std::int64_t{1} << 61);
  CHECK(budget_of(p, {}) > std::int64_t{1} << 61);
}

TEST_CASE("a plan stays under its budget, and no set of modules that does so costs less") {
  const Tape tape = with_lifetimes(blocks(5, 16384, 128));
  TrainingSetup setup = summed();
  setup.optimizer.kind = OptimizerKind::none;
  const auto seconds = call_seconds(tape, setup, device());
  REQUIRE(seconds.ok());
  const std::int64_t plain = allocated_peak(tape, setup);
  // Every subset of the blocks and their layers, run on paper.
  struct Run {
    std::int64_t peak;
    double cost;
  };
  std::vector<Run> runs;
  const std::vector<CheckpointRegion> regions = possible_regions(tape);
  std::vector<CheckpointRegion> whole;
  for (const CheckpointRegion& r : regions)
    if (r.last > r.first) whole.push_back(r);
  REQUIRE(whole.size() == 5);
  for (std::uint32_t set = 0; set < 1u << whole.size(); ++set) {
    Tape chosen = tape;
    for (std::size_t r = 0; r < whole.size(); ++r)
      if (set >> r & 1) chosen.checkpoints.push_back(whole[r]);
    runs.push_back({allocated_peak(chosen, setup), recompute_seconds(chosen.checkpoints, *seconds)});
  }
  const std::int64_t least =
      std::min_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.peak < b.peak; })->peak;
  REQUIRE(least < plain);
  for (int part = 0; part <= 4; ++part) {
    const std::int64_t budget = least + (plain - least) * part / 4;
    double best = std::numeric_limits<double>::infinity();
    for (const Run& r : runs)
      if (r.peak <= budget) best = std::min(best, r.cost);
    TrainingSetup under = setup;
    under.checkpoint_optimal = true;
    under.checkpoint_budget = Bytes(budget);
    const auto plan = plan_checkpoints(tape, under, device());
    REQUIRE(plan.ok());
    Tape chosen = tape;
    chosen.checkpoints = plan->regions;
    CHECK(allocated_peak(chosen, setup) <= budget);
    CHECK(recompute_seconds(chosen.checkpoints, *seconds) <= best * (1 + 1e-9));
    CHECK(plan->cost == doctest::Approx(recompute_seconds(chosen.checkpoints, *seconds)));
  }
  TrainingSetup small = setup;
  small.checkpoint_optimal = true;
  small.checkpoint_budget = Bytes(1000);
  CHECK_FALSE(plan_checkpoints(tape, small, device()).ok());
}

TEST_CASE("a plan without a budget of its own leaves the margin free that is asked for") {
  const Tape tape = with_lifetimes(blocks(6, 16384, 128));
  TrainingSetup setup = summed();
  const Device card = device();
  const auto plain = estimate_tape(tape, setup, card);
  REQUIRE(plain.ok());
  setup.checkpoint_optimal = true;
  const auto wide = plan_checkpoints(tape, setup, card);
  REQUIRE(wide.ok());
  CHECK(wide->regions.empty());  // a large card, and its default margin
  const Bytes usable(plain->peak.process.count - Bytes::mib(1).count);
  setup.margin = Margin{card.total - usable, 0};
  const auto plan = plan_checkpoints(tape, setup, card);
  REQUIRE(plan.ok());
  CHECK_FALSE(plan->regions.empty());
  CHECK(plan->budget == usable);
  CHECK(plan->peak <= usable);
  // Room for a range is room that the plan leaves free.
  const Bytes room = Bytes::mib(8);
  const auto roomy = plan_checkpoints(tape, setup, card, room);
  REQUIRE(roomy.ok());
  CHECK(roomy->peak <= usable - room);
  CHECK(roomy->cost >= plan->cost);
  const auto smallest = smallest_step(tape, setup, card);
  REQUIRE(smallest.ok());
  CHECK(smallest->fits);
  CHECK(smallest->peak <= roomy->peak);
  CHECK(*peak_with_regions(smallest->regions, tape, setup, card) == smallest->peak);
}

TEST_CASE("neighbours run as one stretch, every other block alone") {
  Tape tape = blocks(6, 64, 32);
  checkpoint_modules(tape, {"every:2"});
  REQUIRE(tape.checkpoints.size() == 3);
  CHECK(tape.scopes[static_cast<std::size_t>(tape.checkpoints[0].scope)].path == "blocks.1");
  checkpoint_modules(tape, {"groups:4"});
  REQUIRE(tape.checkpoints.size() == 2);
  CHECK(tape.checkpoints[0].others.size() == 3);
  CHECK(tape.checkpoints[1].others.size() == 1);
  CHECK(tape.checkpoints[0].last + 1 == tape.checkpoints[1].first);
  for (const char* wrong : {"every:7", "every:0", "groups:9", "every:x"})
    CHECK_THROWS_AS(checkpoint_modules(tape, {wrong}), Failure);
}

TEST_CASE("keeping what matrix products return saves their recomputation and costs their bytes") {
  Tape tape = with_lifetimes(blocks(6, 16384, 128));
  checkpoint_modules(tape, {"blocks"});
  TrainingSetup all = summed(), kept = summed();
  kept.checkpoint_save = {"matmul"};
  // Two products of 8 MiB in each block; those of the block under way are there in any case.
  const std::int64_t more = allocated_peak(tape, kept) - allocated_peak(tape, all);
  CHECK(more >= 4 * 2 * 16384 * 128 * 4 / 2);
  CHECK(more <= 6 * 2 * 16384 * 128 * 4);
  kept.checkpoint_save = {"softmax"};
  CHECK_FALSE(run_steps(tape, kept, device()).ok());
}

TEST_CASE(
    "adapters: QLoRA needs less than LoRA, LoRA less than full training, and both grow with what they are given") {
  auto peak = [](int count, std::int64_t rows, std::int64_t rank, bool lora, bool quantized, const char* version = "") {
    Tape tape = blocks(count, rows, 1024);
    LoraSetup setup;
    setup.bitsandbytes = version;
    setup.rank = rank;
    setup.quantized = quantized;
    if (lora) add_adapters(tape, setup, Precision::fp32);
    mark_last_uses(tape);
    return allocated_peak(tape, summed());
  };
  const std::int64_t full = peak(4, 64, 8, false, false), lora = peak(4, 64, 8, true, false),
                     qlora = peak(4, 64, 8, true, true);
  CHECK(lora < full);
  CHECK(qlora < lora);
  CHECK(peak(4, 128, 8, true, true) > qlora);
  CHECK(peak(5, 64, 8, true, true) > qlora);
  CHECK(peak(4, 64, 64, true, true) > qlora);
  CHECK(peak(4, 64, 8, true, true, "0.43.2") == qlora);
  CHECK(peak(4, 64, 8, true, true, "0.43.1") > qlora);
  CHECK(peak(4, 128, 8, true, false) > lora);
  CHECK(peak(5, 64, 8, true, false) > lora);
}

TEST_CASE("versions of bitsandbytes that keep the inputs of 4-bit layers") {
  for (const char* version : {"0.41.1", "0.43", "0.43.1", "0"}) CHECK(bitsandbytes_keeps_inputs(version) == true);
  for (const char* version : {"0.43.2", "0.44.0", "1.0"}) CHECK(bitsandbytes_keeps_inputs(version) == false);
  for (const char* no_version : {"", "new", "0.41.", "0.41.1.2", "-1.0", "0.41rc1"})
    CHECK_FALSE(bitsandbytes_keeps_inputs(no_version));
}

TEST_CASE("adapters go where peft puts them, and nothing else is trained") {
  Tape tape = blocks(3, 8, 16);
  LoraSetup setup;
  setup.rank = 4;
  setup.targets = {"up"};
  add_adapters(tape, setup, Precision::fp32);
  std::int64_t trained = 0;
  for (ValueId id : tape.parameters) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    if (!v.requires_grad) continue;
    CHECK(v.name.find(".up.lora_") != std::string::npos);
    trained += v.sizes[0] * v.sizes[1];
  }
  CHECK(trained == 3 * 4 * (16 + 16));  // r * (in + out) for each of three layers
  setup.targets = {"nowhere"};
  Tape other = blocks(3, 8, 16);
  CHECK_THROWS_AS(add_adapters(other, setup, Precision::fp32), Failure);
}

TEST_CASE("a layer whose weight's dtype the program asks for is not packed") {
  // T5: hidden_states.to(self.wo.weight.dtype); transformers keeps `wo` in fp32 (_keep_in_fp32_modules).
  testing::TapeBuilder b;
  const auto root = b.scope("", "Model", -1);
  b.input({8, 64});
  b.linear("wi", 64, root);
  const ValueId wo = b.value("wo.weight", ValueKind::parameter, {64, 64});
  b.tape.parameters.push_back(wo);
  b.x = b.call("aten::type_as", {{b.x}, {wo}}, root);
  b.x = b.call("aten::linear", {{b.x}, {wo}}, b.scope("wo", "torch.nn.modules.linear.Linear", root));
  b.linear("head", 64, root);
  b.tape.outputs = {b.x};
  LoraSetup setup;
  setup.quantized = true;
  add_adapters(b.tape, setup, Precision::amp_fp16);
  for (const TapeValue& v : b.tape.values) {
    if (v.name.starts_with("wi.") && v.name.ends_with("base_layer.weight")) CHECK(v.dtype == DType::uint8);
    if (v.name.starts_with("wo.") && v.name.ends_with("base_layer.weight")) CHECK(v.dtype == DType::float32);
  }
  mark_last_uses(b.tape);
  CHECK(allocated_peak(b.tape, summed()) > 0);
}

TEST_CASE("what an op makes of integers has no gradient") {
  testing::TapeBuilder b;
  const auto root = b.scope("", "Model", -1);
  b.input({8, 64});
  b.tape.values[static_cast<std::size_t>(b.x.index)].dtype = DType::uint8;
  b.tape.values[static_cast<std::size_t>(b.x.index)].keeps_dtype = true;
  b.linear("up", 64, root);
  b.tape.outputs = {b.x};
  mark_last_uses(b.tape);
  const auto run = run_steps(b.tape, summed(), device());
  REQUIRE_FALSE(run.ok());
  CHECK(run.error().what == "the model has no floating output to take a loss of");
}

TEST_CASE("4-bit weights with double quantization take 4.127 bits each") {
  // arXiv 2305.14314: 4 bits, 8 bits per 64 weights, 32 bits per 64 * 256 weights.
  const std::int64_t width = 4096;
  Tape tape = blocks(1, 8, width);
  LoraSetup setup;
  setup.quantized = true;
  setup.targets = {"up"};
  add_adapters(tape, setup, Precision::bf16);
  std::int64_t bytes = 0;
  for (const TapeValue& v : tape.values) {
    if (v.name.find(".up.base_layer.weight") == std::string::npos) continue;
    std::int64_t n = 1;
    for (std::int64_t s : v.sizes) n *= s;
    bytes += bytes_of(v.dtype, n).count;
  }
  const double bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(width * width);
  CHECK(bits == doctest::Approx(4.12695).epsilon(0.0001));
}

TEST_CASE("bytes of a token in the cache of keys and values") {
  struct Model {
    int layers;
    std::int64_t heads, dim, bytes;
  };
  // Published shapes; 2 * layers * kv heads * head dimension * 2 bytes.
  for (const Model& m : {Model{32, 32, 128, 512 << 10} /* Llama-2-7B */, Model{32, 8, 128, 131072} /* Llama-3-8B */,
                         Model{80, 8, 128, 320 << 10} /* 70B */, Model{126, 8, 128, 504 << 10} /* 405B */,
                         Model{28, 8, 128, 112 << 10} /* Qwen3-1.7B */}) {
    const std::vector<KvLayer> layers(static_cast<std::size_t>(m.layers),
                                      KvLayer{m.heads, m.dim, m.dim, DType::bfloat16, {}});
    KvCacheSetup one;
    one.length = 1;
    CHECK(kv_cache_bytes(layers, one).count == m.bytes);
    KvCacheSetup paged{3, 17, DType::float8_e4m3fn, 16};
    CHECK(kv_cache_bytes(layers, paged).count == 3 * 32 * m.bytes / 2);
  }
}

TEST_CASE("offloaded activations are gone from the device until their node runs, an offloaded optimizer altogether") {
  const Tape tape = with_lifetimes(blocks(6, 16384, 128));
  TrainingSetup plain = summed(), activations = summed(), optimizer = summed();
  activations.offload.activations = true;
  optimizer.offload.optimizer = true;
  const std::int64_t layer = 16384 * 128 * 4;
  CHECK(allocated_peak(tape, plain) - allocated_peak(tape, activations) >= 10 * layer);
  const Tape wide = with_lifetimes(blocks(4, 8, 1024));
  // AdamW: two moments, and the square roots of a step, for nine matrices of 4 MiB.
  CHECK(allocated_peak(wide, plain) - allocated_peak(wide, optimizer) >= 2 * 9 * 1024 * 1024 * 4);
}
