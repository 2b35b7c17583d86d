#include <doctest/doctest.h>

#include "estimators/pipeline.h"

using namespace memplan;

namespace {

struct Program {
  Schedule schedule;
  std::int32_t alloc(std::int64_t bytes) {
    const auto id = static_cast<std::int32_t>(schedule.allocations.size());
    Allocation allocation;
    allocation.size = Bytes(bytes);
    schedule.allocations.push_back(allocation);
    schedule.events.push_back({Event::Kind::alloc, id});
    return id;
  }
  void free(std::int32_t id) { schedule.events.push_back({Event::Kind::free, id}); }
};

Device small_device() {
  Device device;
  device.total = Bytes::mib(120);
  device.context = Bytes::mib(20);
  return device;
}

}  // namespace

TEST_CASE("a schedule becomes one sample per event") {
  Program p;
  const auto a = p.alloc(1000);
  p.alloc(0);  // a request of no bytes: no block
  p.free(a);
  const auto timeline = replay(p.schedule, {}, small_device());
  REQUIRE(timeline.ok());
  REQUIRE(timeline->samples.size() == 3);
  CHECK(timeline->samples[0].requested == 1000);
  CHECK(timeline->samples[0].allocated == 1024);
  CHECK(timeline->samples[0].reserved == 2 << 20);
  CHECK(timeline->samples[1].allocated == 1024);
  CHECK(timeline->samples[2].allocated == 0);
  CHECK(timeline->samples[2].reserved == 2 << 20);
  CHECK(timeline->block_bytes == std::vector<std::int64_t>{1024, 0});
  CHECK(timeline->segments == 1);
}

TEST_CASE("the context is not available to the allocator, and replay stops where memory is out") {
  Program p;
  p.alloc(60 << 20);
  p.alloc(42 << 20);  // 102 MiB of 100
  p.alloc(1 << 20);
  const auto timeline = replay(p.schedule, {}, small_device());
  REQUIRE(timeline.ok());
  CHECK(timeline->out_of_memory_event == 1);
  CHECK(timeline->out_of_memory_request == 42 << 20);
  CHECK(timeline->samples.size() == 1);
  CHECK(timeline->retries == 1);
}

TEST_CASE("empty_cache in a schedule gives whole segments back") {
  Program p;
  p.free(p.alloc(30 << 20));
  p.schedule.events.push_back({Event::Kind::empty_cache, -1});
  const auto timeline = replay(p.schedule, {}, small_device());
  REQUIRE(timeline.ok());
  CHECK(timeline->samples[1].reserved == 30 << 20);
  CHECK(timeline->samples[2].reserved == 0);
}

TEST_CASE("without a limit there is one all the same: more than 1 EiB is an error, not half a run") {
  Program p;
  p.alloc((std::int64_t{1} << 60) - (std::int64_t{1} << 30));
  CHECK(replay_unlimited(p.schedule, {}, small_device()).ok());
  p.alloc(std::int64_t{1} << 31);
  const auto timeline = replay_unlimited(p.schedule, {}, small_device());
  REQUIRE_FALSE(timeline.ok());
  CHECK(timeline.error().kind == ErrorKind::input);
  CHECK(timeline.error().what.find("1 EiB") != std::string::npos);
}
