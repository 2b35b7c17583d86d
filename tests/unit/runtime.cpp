#include "estimators/runtime/runtime.h"

#include <doctest/doctest.h>

#include "estimators/pipeline.h"
#include "estimators/replay/replay.h"
#include "tests/unit/tape_builder.h"

using namespace memplan;

namespace {

/// Hands out one address after the other and takes nothing back: the simplest allocator there is.
class BumpAllocator final : public Allocator {
 public:
  explicit BumpAllocator(std::int64_t capacity) : capacity_(capacity) {}

  Placement allocate(const Request& request) override {
    const std::int64_t bytes = (request.bytes + 255) / 256 * 256;
    if (top_ + bytes > capacity_) return {};
    const auto id = static_cast<BlockId>(blocks_.size());
    blocks_.push_back({id, static_cast<std::uint64_t>(top_), bytes, request.bytes, true});
    if (log_) log_->push_back({SegmentEvent::Kind::map, static_cast<std::uint64_t>(top_), bytes, request.stream});
    top_ += bytes;
    usage_ = {usage_.requested + request.bytes, usage_.allocated + bytes, top_};
    return {id, blocks_.back().address, bytes};
  }
  void free(BlockId id) override {
    BlockView& block = blocks_[static_cast<std::size_t>(id)];
    usage_.requested -= block.requested;
    usage_.allocated -= block.bytes;
    block.requested = 0;
    block.allocated = false;
  }
  Usage usage() const override { return usage_; }
  AllocatorTotals totals() const override { return {1, 0}; }
  std::vector<SegmentView> segments() const override { return {{0, top_, 0, false, true, blocks_}}; }
  void record_segments(std::vector<SegmentEvent>* log) override { log_ = log; }

 private:
  std::int64_t capacity_ = 0, top_ = 0;
  std::vector<BlockView> blocks_;
  Usage usage_;
  std::vector<SegmentEvent>* log_ = nullptr;
};

/// A runtime whose program takes the inputs one after the other, drops each for the next, and computes nothing.
class BumpRuntime final : public Runtime {
 public:
  std::string title(const TrainingSetup&) const override { return "a program of inputs"; }
  Schedule schedule(const Tape& tape, const TrainingSetup&, const Ranks&, const Device&) const override {
    Schedule s;
    for (const TapeValue& v : tape.values) {
      if (v.kind != ValueKind::user_input) continue;
      const auto id = static_cast<std::int32_t>(s.allocations.size());
      Allocation a;
      a.size = Bytes(4);
      for (std::int64_t n : v.sizes) a.size = a.size * n;
      s.allocations.push_back(a);
      s.events.push_back({Event::Kind::alloc, id});
      if (id > 0) s.events.push_back({Event::Kind::free, id - 1});
    }
    return s;
  }
  std::unique_ptr<Allocator> allocator(const Schedule&, const TrainingSetup& setup,
                                       const Device& device) const override {
    return std::make_unique<BumpAllocator>((device.total - outside(setup, device)).count);
  }
  Bytes outside(const TrainingSetup&, const Device&) const override { return Bytes(1000); }
  std::string outside_assumption(const TrainingSetup&, const Device&) const override { return "nothing but itself"; }
};

Device ten_kilobytes() {
  Device device;
  device.total = Bytes(10000);
  return device;
}

Tape three_inputs() {
  testing::TapeBuilder b;
  for (int i = 0; i < 3; ++i) b.value("x", ValueKind::user_input, {10, 25});
  return b.tape;
}

}  // namespace

TEST_CASE("a runtime's schedule is replayed by its own allocator") {
  const BumpRuntime runtime;
  const Schedule schedule = runtime.schedule(three_inputs(), {}, resolve({}), ten_kilobytes());
  const Timeline t = replay(schedule, *runtime.allocator(schedule, {}, ten_kilobytes()));
  REQUIRE(t.samples.size() == 5);
  CHECK(t.samples[0].requested == 1000);
  CHECK(t.samples[0].allocated == 1024);
  CHECK(t.samples[1].allocated == 2048);
  CHECK(t.samples[2].allocated == 1024);
  CHECK(t.samples[4].reserved == 3 * 1024);
  CHECK(t.addresses == std::vector<std::uint64_t>{0, 1024, 2048});
  CHECK(t.block_bytes == std::vector<std::int64_t>{1024, 1024, 1024});
  CHECK(t.segments == 1);
}

TEST_CASE("the map of the memory shows what a runtime's allocator holds") {
  const BumpRuntime runtime;
  const Schedule schedule = runtime.schedule(three_inputs(), {}, resolve({}), ten_kilobytes());
  const MemoryMap map = map_memory(schedule, *runtime.allocator(schedule, {}, ten_kilobytes()), 1);
  REQUIRE(map.at_event.size() == 1);
  REQUIRE(map.at_event[0].blocks.size() == 2);
  CHECK(map.at_event[0].blocks[1].allocation == 1);
  REQUIRE(map.at_end[0].blocks.size() == 3);
  CHECK(map.at_end[0].blocks[0].allocation == -1);
  CHECK(map.at_end[0].blocks[2].allocation == 2);
  REQUIRE(map.driver.size() == 3);
  CHECK(map.driver[2].event == 3);
}

TEST_CASE("replay and map stop where a runtime's allocator has no room") {
  const BumpRuntime runtime;
  const Schedule schedule = runtime.schedule(three_inputs(), {}, resolve({}), ten_kilobytes());
  BumpAllocator first(2500), second(2500);
  const Timeline t = replay(schedule, first);
  CHECK(t.out_of_memory_event == 3);
  CHECK(t.out_of_memory_request == 1000);
  CHECK(t.samples.size() == 3);
  CHECK(map_memory(schedule, second, 0).refused == 1000);
}

TEST_CASE("a setup that names no runtime of the table is refused") {
  TrainingSetup setup;
  setup.runtime.name = "unknown";
  const auto made = run_steps(three_inputs(), setup, ten_kilobytes());
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().hint == "known runtimes: torch, ort");
  CHECK_THROWS_AS(BumpRuntime().rank_programs(three_inputs(), setup, resolve({}), ten_kilobytes()), Failure);
}
