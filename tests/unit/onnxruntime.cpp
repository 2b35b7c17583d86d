// ONNX Runtime's arena, memory pattern and order of nodes: requests and totals as onnxruntime-gpu 1.31.1 itself made
// them (data/measured/ort, model mlp), and cases worked out by hand.
#include <doctest/doctest.h>

#include "estimators/runtime/ort/arena.h"
#include "estimators/runtime/ort/pattern.h"
#include "estimators/runtime/ort/placement.h"
#include "estimators/runtime/ort/shapes.h"
#include "estimators/setup/field.h"

using namespace memplan;

namespace {

constexpr std::int64_t MiB = 1 << 20;

BlockId take_block(ort::Arena& arena, std::int64_t bytes, std::int32_t stream = 0) {
  return arena.allocate({bytes, stream, 0}).block;
}

GraphNode node(std::vector<GraphValueId> inputs, std::vector<GraphValueId> outputs) {
  GraphNode n;
  n.op_type = "Relu";
  n.inputs = std::move(inputs);
  n.outputs = std::move(outputs);
  return n;
}

}  // namespace

TEST_CASE("the arena with kSameAsRequested holds what ONNX Runtime's held after every run of an MLP") {
  OrtSetup setup;
  setup.extend = ArenaExtend::same_as_requested;
  ort::Arena arena(setup, Bytes::gib(80));
  for (const std::int64_t weight : {81920, 40, 16777216, 6422528, 8192, 8192}) take_block(arena, weight);
  CHECK(arena.usage().reserved == 23298304);
  const BlockId input = take_block(arena, 200704, 1), a = take_block(arena, 524288, 1),
                b = take_block(arena, 524288, 1);
  arena.free(a);
  const BlockId out = take_block(arena, 2560, 1);
  for (const BlockId block : {b, out, input}) arena.free(block);
  CHECK(arena.usage().reserved == 24547584);
  take_block(arena, 200704, 2);
  take_block(arena, 1048576, 2);  // the memory pattern fits into no region of the first run
  take_block(arena, 2560, 2);
  CHECK(arena.usage().reserved == 25596160);
}

TEST_CASE("the arena with kNextPowerOfTwo doubles its regions from 1 MiB") {
  ort::Arena arena({}, Bytes::gib(80));
  take_block(arena, 256);
  CHECK(arena.usage().reserved == 1 * MiB);
  take_block(arena, MiB);  // not in what is left of the first one: 2 MiB
  CHECK(arena.usage().reserved == 3 * MiB);
  take_block(arena, 20 * MiB);  // jumps to 32 MiB, and the next region is as large
  CHECK(arena.usage().reserved == 35 * MiB);
  take_block(arena, 20 * MiB);
  CHECK(arena.usage().reserved == 67 * MiB);
  take_block(arena, 30 * MiB);
  CHECK(arena.usage().reserved == 131 * MiB);
}

TEST_CASE("a block of the arena is split when half of it would be left") {
  OrtSetup setup;
  setup.extend = ArenaExtend::same_as_requested;
  ort::Arena arena(setup, Bytes::gib(80));
  arena.free(take_block(arena, 4 * MiB));
  CHECK(arena.allocate({3 * MiB, 0, 0}).bytes == 4 * MiB);
  ort::Arena other(setup, Bytes::gib(80));
  other.free(take_block(other, 4 * MiB));
  CHECK(other.allocate({2 * MiB, 0, 0}).bytes == 2 * MiB);
  CHECK(other.usage().reserved == 4 * MiB);
}

TEST_CASE("free neighbours of different streams join when the next run begins") {
  OrtSetup setup;
  setup.extend = ArenaExtend::same_as_requested;
  ort::Arena arena(setup, Bytes::gib(80));
  arena.free(take_block(arena, 4 * MiB));
  const BlockId half = take_block(arena, 2 * MiB, 1);  // what is left belongs to no stream
  arena.free(half);
  take_block(arena, 3 * MiB, 1);
  CHECK(arena.usage().reserved == 7 * MiB);
  take_block(arena, 4 * MiB, 2);
  CHECK(arena.usage().reserved == 7 * MiB);
}

TEST_CASE("the limit and the device end the arena") {
  OrtSetup setup;
  setup.extend = ArenaExtend::same_as_requested;
  setup.memory_limit = Bytes::mib(3);
  ort::Arena arena(setup, Bytes::gib(80));
  CHECK(take_block(arena, 2 * MiB) != no_block);
  CHECK(take_block(arena, 2 * MiB) == no_block);
  // The driver refuses 4 MiB and what is a tenth less, three times: 2.916 MiB, rounded up to 256 bytes, fits into 3
  // MiB.
  ort::Arena small({}, Bytes::mib(3));
  CHECK(take_block(small, 5 * MiB / 2) != no_block);
  CHECK(small.usage().reserved == 3057920);
}

TEST_CASE("shrinkage gives back regions that nothing uses") {
  OrtSetup setup;
  setup.extend = ArenaExtend::same_as_requested;
  ort::Arena arena(setup, Bytes::gib(80));
  take_block(arena, MiB);
  arena.free(take_block(arena, 2 * MiB));
  arena.empty_cache();
  CHECK(arena.usage().reserved == MiB);
}

TEST_CASE("the memory pattern fills the gap that fits best") {
  ort::MemoryPattern pattern;
  for (const auto& [buffer, bytes] : {std::pair{0, 1024}, {1, 512}, {2, 256}, {3, 2048}, {4, 256}})
    pattern.allocate(buffer, bytes);
  CHECK(pattern.bytes() == 4096);
  pattern.free(1);
  pattern.free(3);
  pattern.allocate(5, 500);  // into the gap of 512
  pattern.allocate(6, 2048);
  CHECK(pattern.bytes() == 4096);
  pattern.allocate(7, 256);
  CHECK(pattern.bytes() == 4352);
}

TEST_CASE("nodes run as a depth-first search from the outputs finds them, the later branch first") {
  // 0 -> {node 0 -> 1, node 1 -> 2}; node 2 reads both.
  Graph g;
  g.values.resize(4);
  g.nodes = {node({0}, {1}), node({0}, {2}), node({1, 2}, {3})};
  CHECK(ort::run_order(g) == std::vector<std::int32_t>{1, 0, 2});
}

TEST_CASE("a shape that inference cannot tell is like no other") {
  const Dim open, batch{-1, "batch"}, four{4, {}};
  CHECK(ort::same_shape({{batch, four}}, {{batch, four}}));
  CHECK_FALSE(ort::same_shape({{open, four}}, {{open, four}}));
  CHECK_FALSE(ort::same_shape({{batch, four}}, {{four, four}}));
  CHECK_FALSE(ort::same_shape(std::nullopt, std::nullopt));
}

TEST_CASE("options of ONNX Runtime are set by its own names") {
  OrtSetup setup;
  set_ort_option(setup, "arena_extend_strategy", "kSameAsRequested");
  set_ort_option(setup, "enable_mem_pattern", "0");
  set_ort_option(setup, "gpu_mem_limit", "1000000");
  CHECK(setup.extend == ArenaExtend::same_as_requested);
  CHECK_FALSE(setup.memory_pattern);
  CHECK(setup.memory_limit->count == 1000000);
  CHECK(ort_options(setup).size() == 3);
  CHECK_THROWS_AS(set_ort_option(setup, "arena_extend_strategy", "kTwice"), Failure);
  CHECK_THROWS_AS(set_ort_option(setup, "gpu_mem_limit", "2GB"), Failure);
  CHECK_THROWS_AS(set_ort_option(setup, "tunable_op_enable", "1"), Failure);
}
