// The model of PyTorch's caching allocator against cases worked out by hand from its rules.
#include <doctest/doctest.h>

#include "estimators/runtime/torch/allocator/caching_allocator.h"
#include "estimators/runtime/torch/profile/profile.h"

using namespace memplan;

namespace {

constexpr std::int64_t MiB = 1 << 20;
constexpr std::int64_t GiB = 1 << 30;

const AllocatorConstants& constants() { return profile_named("2.11").allocator; }

CachingAllocator allocator_with(const AllocatorSetup& setup, std::int64_t capacity = 80 * GiB) {
  return CachingAllocator(setup, constants(), DeviceMemory(Bytes(capacity), Bytes(0)));
}

/// allocated_bytes, reserved_bytes, inactive_split_bytes, segments
void check_state(const CachingAllocator& a, std::int64_t allocated, std::int64_t reserved, std::int64_t split,
                 std::int64_t segments) {
  CHECK(a.stats().all.allocated_bytes.current == allocated);
  CHECK(a.stats().all.reserved_bytes.current == reserved);
  CHECK(a.stats().all.inactive_split_bytes.current == split);
  CHECK(a.stats().all.segment.current == segments);
}

}  // namespace

TEST_CASE("a session of one stream with the default settings") {
  // Worked out step by step with an independent simulator of the published rules.
  CachingAllocator m = allocator_with({});
  const BlockId a = m.malloc(1, 0);
  CHECK(m.block_bytes(a) == 512);
  check_state(m, 512, 2097152, 2096640, 1);
  const BlockId b = m.malloc(1048576, 0);
  check_state(m, 1049088, 2097152, 1048064, 1);
  const BlockId c = m.malloc(1048577, 0);
  CHECK(m.block_bytes(c) == 1049088);
  check_state(m, 2098176, 23068672, 20970496, 2);
  const BlockId d = m.malloc(10485760, 0);
  check_state(m, 12583936, 23068672, 10484736, 2);
  const BlockId e = m.malloc(11534336, 0);
  CHECK(m.block_bytes(e) == 12582912);  // a 12 MiB segment whose rest of 1 MiB stays with the block
  check_state(m, 25166848, 35651584, 10484736, 3);
  m.malloc(12582912, 0);
  check_state(m, 37749760, 48234496, 10484736, 4);
  m.free(c);
  check_state(m, 36700672, 48234496, 11533824, 4);
  m.malloc(9437184, 0);  // 9436672 bytes are free in one piece: 512 too few
  check_state(m, 46137856, 69206016, 23068160, 5);
  m.free(d);
  check_state(m, 35652096, 69206016, 12582400, 5);
  m.free(e);
  check_state(m, 23069184, 69206016, 12582400, 5);
  const BlockId h = m.malloc(12058624, 0);
  CHECK(m.block_bytes(h) == 12582912);
  check_state(m, 35652096, 69206016, 12582400, 5);
  m.free(a);
  check_state(m, 35651584, 69206016, 12582912, 5);
  m.free(b);
  check_state(m, 34603008, 69206016, 11534336, 5);
  CHECK(m.stats().all.allocated_bytes.peak == 46137856);
}

TEST_CASE("requests are rounded to 512 bytes, or to a fraction of a power of two") {
  AllocatorRules rules = rules_of({}, constants());
  CHECK(round_request(1, rules) == 512);
  CHECK(round_request(512, rules) == 512);
  CHECK(round_request(513, rules) == 1024);
  AllocatorSetup setup;
  setup.roundup_power2_divisions.assign(16, 4);
  rules = rules_of(setup, constants());
  CHECK(round_request(2048, rules) == 2048);                // not above 512 times the divisions: 512-byte steps
  CHECK(round_request(1200 * 1024, rules) == 1280 * 1024);  // PyTorch's own example: 1200 with 4 divisions gives 1280
  CHECK(round_request(1024 * 1024, rules) == 1024 * 1024);
  setup.roundup_power2_divisions[0] = 1;  // requests below 2 MiB: off
  CHECK(round_request(1200 * 1024 + 1, rules_of(setup, constants())) == 1200 * 1024 + 512);
}

TEST_CASE("settings that PyTorch refuses are usage errors") {
  AllocatorSetup setup;
  setup.max_split_size = Bytes::mib(10);
  CHECK_THROWS_AS(rules_of(setup, constants()), Failure);
  setup = {};
  setup.large_segment = Bytes::mib(10);
  CHECK_THROWS_AS(rules_of(setup, constants()), Failure);
  setup = {};
  setup.roundup_power2_divisions.assign(16, 3);
  CHECK_THROWS_AS(rules_of(setup, constants()), Failure);
}

TEST_CASE("equal free blocks: the lowest address is taken") {
  CachingAllocator m = allocator_with({});
  const BlockId first = m.malloc(32 * MiB, 0), second = m.malloc(32 * MiB, 0);
  const auto address = m.address(first);
  m.free(second);
  m.free(first);
  CHECK(m.address(m.malloc(32 * MiB, 0)) == address);
}

TEST_CASE("streams do not share blocks") {
  CachingAllocator m = allocator_with({});
  m.free(m.malloc(32 * MiB, 0));
  m.malloc(32 * MiB, 1);
  CHECK(m.stats().all.segment.current == 2);
  m.malloc(32 * MiB, 0);
  CHECK(m.stats().all.segment.current == 2);
}

TEST_CASE("a block that another stream still uses stays active until that stream is done") {
  CachingAllocator m = allocator_with({});
  const BlockId block = m.malloc(32 * MiB, 0);
  m.request_free(block);
  CHECK(m.stats().all.allocated_bytes.current == 0);
  CHECK(m.stats().all.active_bytes.current == 32 * MiB);
  m.malloc(32 * MiB, 0);
  CHECK(m.stats().all.segment.current == 2);
  m.complete_free(block);
  CHECK(m.stats().all.active_bytes.current == 32 * MiB);
  m.malloc(32 * MiB, 0);
  CHECK(m.stats().all.segment.current == 2);
}

TEST_CASE("when memory is out the cache is given back once, then the request fails") {
  CachingAllocator m = allocator_with({}, 100 * MiB);
  m.free(m.malloc(60 * MiB, 0));
  const BlockId big = m.malloc(80 * MiB, 0);
  REQUIRE(big != no_block);
  CHECK(m.stats().num_alloc_retries == 1);
  CHECK(m.stats().all.reserved_bytes.current == 80 * MiB);
  CHECK(m.malloc(30 * MiB, 0) == no_block);
  CHECK(m.stats().num_ooms == 1);
  CHECK(m.malloc(20 * MiB, 0) != no_block);
}

TEST_CASE("max_split_size keeps large blocks whole and large requests out of much larger blocks") {
  AllocatorSetup setup;
  setup.max_split_size = Bytes::mib(64);
  CachingAllocator m = allocator_with(setup);
  m.free(m.malloc(100 * MiB, 0));
  m.malloc(40 * MiB, 0);  // would be carved from the 100 MiB without the setting
  CHECK(m.stats().all.reserved_bytes.current == 140 * MiB);
  m.malloc(80 * MiB, 0);  // 100 >= 80 + 20: too much waste
  CHECK(m.stats().all.reserved_bytes.current == 220 * MiB);
  const BlockId near = m.malloc(81 * MiB, 0);
  CHECK(m.block_bytes(near) == 100 * MiB);
  CHECK(m.stats().all.reserved_bytes.current == 220 * MiB);
}

TEST_CASE("with max_split_size, one oversize block is given back before the whole cache") {
  AllocatorSetup setup;
  setup.max_split_size = Bytes::mib(64);
  CachingAllocator m = allocator_with(setup, 300 * MiB);
  const BlockId a = m.malloc(100 * MiB, 0), b = m.malloc(150 * MiB, 0);
  m.free(a);
  m.free(b);
  CHECK(m.malloc(200 * MiB, 0) != no_block);  // frees from the largest down until 200 MiB are released
  CHECK(m.stats().num_alloc_retries == 0);
  CHECK(m.stats().all.reserved_bytes.current == 200 * MiB);
}

TEST_CASE("a memory fraction limits the reserved bytes to that part of the total") {
  AllocatorSetup setup;
  setup.memory_fraction = 0.5;
  CachingAllocator m = allocator_with(setup, 200 * MiB);
  CHECK(m.malloc(100 * MiB, 0) != no_block);
  CHECK(m.malloc(2 * MiB, 0) == no_block);
}

TEST_CASE("garbage collection gives back the oldest whole segments before new memory is taken") {
  AllocatorSetup setup;
  setup.memory_fraction = 0.5;
  setup.garbage_collection_threshold = 0.5;  // 100 MiB of the 200 MiB allowed
  CachingAllocator m = allocator_with(setup, 400 * MiB);
  const BlockId old = m.malloc(40 * MiB, 0), young = m.malloc(62 * MiB, 0);
  m.free(old);
  m.malloc(2 * MiB, 0);  // taken from the 40 MiB: it is split and no candidate
  m.free(young);
  m.malloc(64 * MiB, 0);  // 102 MiB reserved are above the threshold; `young` is the only candidate
  CHECK(m.stats().all.reserved_bytes.current == 40 * MiB + 64 * MiB);
  CHECK(m.stats().num_device_free == 1);
}

TEST_CASE("expandable segments map granules of 20 MiB for large and 2 MiB for small requests") {
  AllocatorSetup setup;
  setup.expandable_segments = true;
  CachingAllocator m = allocator_with(setup);
  m.malloc(1000, 0);
  CHECK(m.stats().all.reserved_bytes.current == 2 * MiB);
  const BlockId a = m.malloc(30 * MiB, 0);
  CHECK(m.stats().all.reserved_bytes.current == 42 * MiB);
  const BlockId b = m.malloc(15 * MiB, 0);  // 10 MiB are mapped and free: one granule more
  CHECK(m.stats().all.reserved_bytes.current == 62 * MiB);
  CHECK(m.address(b) == m.address(a) + 30 * MiB);
  CHECK(m.stats().all.segment.current == 0);
  CHECK(m.stats().all.inactive_split_bytes.current == 0);
  m.free(a);
  m.empty_cache();  // the granule that holds the end of `a` and the beginning of `b` stays, so does the last one
  CHECK(m.stats().all.reserved_bytes.current == 42 * MiB);
  m.free(b);
  m.empty_cache();
  CHECK(m.stats().all.reserved_bytes.current == 2 * MiB);
}

TEST_CASE("an arena of a hundred million granules grows at once, and not by a part of what is asked") {
  AllocatorSetup setup;
  setup.expandable_segments = true;
  const std::int64_t granule = 20 * MiB, granules = 100'000'000;
  CachingAllocator m(setup, constants(), DeviceMemory(Bytes(granule * granules), Bytes(granule)));
  m.malloc(30 * MiB, 0);
  CHECK(m.malloc(granule * (granules - 2), 0) == no_block);  // two granules are taken, the context has another
  CHECK(m.stats().all.reserved_bytes.current == 2 * granule);
  CHECK(m.malloc(granule * (granules - 3) + 10 * MiB, 0) != no_block);  // with what is free behind the first block
  CHECK(m.stats().all.reserved_bytes.current == granule * (granules - 1));
}

TEST_CASE("the context is not part of what can be allocated") {
  DeviceMemory memory(Bytes::mib(100), Bytes::mib(10));
  CHECK(memory.allocate(90 * MiB).has_value());
  CHECK_FALSE(memory.allocate(1).has_value());
}
