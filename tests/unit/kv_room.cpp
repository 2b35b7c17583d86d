// What a server has left for keys and values, against figures that vLLM printed.
#include "planner/kv_room.h"

#include <doctest/doctest.h>

using namespace memplan;

namespace {

Bytes gib(double n) { return Bytes(static_cast<std::int64_t>(n * 0x1p30)); }

double in_gib(Bytes b) { return static_cast<double>(b.count) / 0x1p30; }

}  // namespace

TEST_CASE("the budget of keys and values is that of vLLM's log (vllm-project/vllm#11251)") {
  // "total_gpu_memory (15.77GiB) x gpu_memory_utilization (0.90) = 14.20GiB; model weights take 7.51GiB;
  // non_torch_memory takes 0.39GiB; PyTorch activation peak memory takes 2.53GiB; the rest of the memory reserved for
  // KV Cache is 3.76GiB."
  Estimate forward;
  forward.parts = {{Part::parameters, gib(7.0)}, {Part::buffers, gib(0.51)}, {Part::activations, gib(2.53)}};
  forward.peak.allocated = gib(7.51 + 2.53);
  forward.peak.reserved = gib(11);  // what the allocator keeps is given back before the cache is made
  forward.peak.process = gib(11 + 0.39);
  const Bytes total = gib(15.77);
  const KvBudget b = kv_budget(forward, total, gib(15.77 * 0.10));
  CHECK(in_gib(b.limit) == doctest::Approx(14.20).epsilon(0.001));
  CHECK(in_gib(b.weights) == doctest::Approx(7.51).epsilon(1e-6));
  CHECK(in_gib(b.activations) == doctest::Approx(2.53).epsilon(1e-6));
  CHECK(in_gib(b.other) == doctest::Approx(0.39).epsilon(1e-6));
  CHECK(std::abs(in_gib(b.left) - 3.76) <= 0.01);
}

TEST_CASE("tokens in a budget are whole pages (vllm-project/vllm#33263: Qwen3-1.7B, 18.78 GiB, 175,856 tokens)") {
  const Bytes per_token(28 * 8 * (128 + 128) * 2);        // layers, key/value heads, key and value, bf16: 112 KiB
  CHECK(tokens_in(gib(18.78), per_token, 16) == 175808);  // the quotient is 175,823.7, that is 10,988.98 pages
  // The log rounds to 0.01 GiB.
  CHECK(tokens_in(gib(18.775), per_token, 16) <= 175856);
  CHECK(tokens_in(gib(18.785), per_token, 16) >= 175856);
  CHECK(tokens_in(per_token * 16, per_token, 16) == 16);
  CHECK(tokens_in(per_token * 16 - Bytes(1), per_token, 16) == 0);
  CHECK(tokens_in(Bytes(-1), per_token, 16) == 0);
}
