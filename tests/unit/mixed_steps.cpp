#include "estimators/schedule/mixed_steps.h"

#include <doctest/doctest.h>

#include "estimators/pipeline.h"
#include "estimators/runtime/torch/allocator/device_memory.h"

using namespace memplan;

namespace {

/// A weight; then steps that each bind a batch before the one before it goes, and hold a piece of work meanwhile.
Schedule steps_with(std::int64_t batch, int steps, bool keeps_more = false) {
  Schedule s;
  const auto alloc = [&](std::int64_t bytes) {
    Allocation a;
    a.size = Bytes(bytes);
    a.born = static_cast<std::int32_t>(s.events.size());
    s.allocations.push_back(a);
    const auto id = static_cast<std::int32_t>(s.allocations.size()) - 1;
    s.events.push_back({Event::Kind::alloc, id});
    return id;
  };
  const auto free = [&](std::int32_t id) {
    s.allocations[static_cast<std::size_t>(id)].died = static_cast<std::int32_t>(s.events.size());
    s.events.push_back({Event::Kind::free, id});
  };
  alloc(5000);
  std::int32_t name = -1;
  for (int step = 0; step < steps; ++step) {
    s.step_begins.push_back(static_cast<std::int32_t>(s.events.size()));
    const std::int32_t fresh = alloc(batch);
    if (name >= 0) free(name);
    name = fresh;
    free(alloc(10 * batch));
    if (keeps_more && step == 0) alloc(7);
  }
  return s;
}

std::vector<std::int64_t> requested(const Schedule& s) {
  Device device;
  device.total = Bytes::gib(10);
  const auto timeline = replay(s, {}, device);
  REQUIRE(timeline.ok());
  std::vector<std::int64_t> out;
  for (const Sample& at : timeline->samples) out.push_back(at.requested);
  return out;
}

}  // namespace

TEST_CASE("steps of one size put together are the run of that size") {
  const Schedule s = steps_with(100, 3);
  const auto mixed = mixed_steps({&s, &s, &s});
  REQUIRE(mixed);
  CHECK(requested(*mixed) == requested(s));
}

TEST_CASE("what lives from one step into the next keeps the size of the step that made it") {
  const Schedule small = steps_with(100, 3), large = steps_with(1000, 3);
  const auto mixed = mixed_steps({&small, &large, &small, &small});
  REQUIRE(mixed);
  const std::vector<std::int64_t> at = requested(*mixed);
  CHECK(at == std::vector<std::int64_t>{5000, 5100, 6100, 5100,    // the small one comes first
                                        6100, 6000, 16000, 6000,   // the large one beside it, then alone
                                        6100, 5100, 6100, 5100,    // and the small one again
                                        5200, 5100, 6100, 5100});  // a step more than the run has
}

TEST_CASE("runs that keep another number of allocations are not mixed") {
  const Schedule s = steps_with(100, 3), more = steps_with(100, 3, true);
  CHECK(mixed_steps({&more, &more}));
  CHECK_FALSE(mixed_steps({&s, &more, &more}));
  CHECK_FALSE(mixed_steps({&more, &s}));
}

// The addresses of a process on an H100 (segments of 20 and 2 MiB, in this order): 0x7f29f6000000, 0x7f29f4000000,
// 0x7f29f2000000, 0x7f29f0000000, 0x7f29f1400000, 0x7f29ee000000.
TEST_CASE("falling addresses are those that real processes show") {
  DeviceMemory memory(Bytes::gib(10), Bytes(0), true);
  constexpr std::int64_t MiB = 1 << 20;
  const std::uint64_t first = memory.allocate(20 * MiB).value();
  std::vector<std::int64_t> at;
  for (const std::int64_t size : {20, 20, 20, 2, 20})
    at.push_back(static_cast<std::int64_t>(memory.allocate(size * MiB).value() - first));
  CHECK(at == std::vector<std::int64_t>{-0x2000000, -0x4000000, -0x6000000, -0x4c00000, -0x8000000});
}
