// How many requests and frees a second the model of the caching allocator takes: the search for the largest batch that
// fits replays hundreds of schedules of 10^4 to 10^6 events.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "estimators/runtime/torch/allocator/caching_allocator.h"
#include "estimators/runtime/torch/profile/profile.h"

using namespace memplan;

namespace {

/// Requests (bytes > 0) and frees (-1 - index of the request) of a program that keeps `live` blocks.
std::vector<std::int64_t> program(int events, int live) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> sizes, out, alive;
  std::uniform_real_distribution<double> exponent(6, 26);
  for (int i = 0; i < 64; ++i) sizes.push_back(static_cast<std::int64_t>(std::exp2(exponent(random))));
  std::int64_t count = 0;
  for (int i = 0; i < events; ++i) {
    if (static_cast<int>(alive.size()) >= live || (!alive.empty() && random() % 3 == 0)) {
      const std::size_t k = random() % alive.size();
      out.push_back(-1 - alive[k]);
      alive[k] = alive.back();
      alive.pop_back();
    } else {
      out.push_back(sizes[random() % sizes.size()]);
      alive.push_back(count++);
    }
  }
  return out;
}

void run(benchmark::State& state, const AllocatorSetup& setup) {
  const auto events = program(100000, static_cast<int>(state.range(0)));
  std::vector<BlockId> blocks;
  for (auto _ : state) {
    CachingAllocator allocator(setup, profile_named("2.11").allocator, DeviceMemory(Bytes::gib(1 << 20), Bytes(0)));
    blocks.clear();
    for (const std::int64_t event : events) {
      if (event > 0)
        blocks.push_back(allocator.malloc(event, 0));
      else
        allocator.free(blocks[static_cast<std::size_t>(-1 - event)]);
    }
    benchmark::DoNotOptimize(allocator.stats().all.reserved_bytes.peak);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(events.size()));
}

void allocator_default(benchmark::State& state) { run(state, {}); }

void allocator_expandable(benchmark::State& state) {
  AllocatorSetup setup;
  setup.expandable_segments = true;
  run(state, setup);
}

}  // namespace

BENCHMARK(allocator_default)->Arg(100)->Arg(1000)->Arg(10000);
BENCHMARK(allocator_expandable)->Arg(100)->Arg(1000)->Arg(10000);
