// Programs of requests and frees against what holds for every allocator: blocks do not overlap, segments have no gaps,
// and the counters are the sums of what is there.
#include <algorithm>
#include <string>
#include <vector>

#include "estimators/runtime/torch/allocator/caching_allocator.h"
#include "tests/fuzz/targets.h"

namespace memplan::fuzz {

namespace {

/// The bytes of an input, one decision after the other; zeros where it ends.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  std::uint64_t next(int bytes) {
    std::uint64_t v = 0;
    for (; bytes > 0; --bytes) {
      v = v << 8 | (bytes_.empty() ? 0 : static_cast<unsigned char>(bytes_.front()));
      if (!bytes_.empty()) bytes_.remove_prefix(1);
    }
    return v;
  }

 private:
  std::string_view bytes_;
};

/// Those of PyTorch 2.11, c10/core/AllocatorConfig.h.
constexpr AllocatorConstants constants{512, 1 << 20, 2 << 20, 10 << 20, 2 << 20, 20 << 20, false};

AllocatorSetup setup_of(Choices& in, AllocatorConstants& of_version) {
  AllocatorSetup setup;
  const std::uint64_t flags = in.next(1);
  of_version.oldest_first = flags & 32;
  setup.expandable_segments = flags & 1;
  if (flags & 2) setup.max_split_size = Bytes::mib(20 + static_cast<std::int64_t>(in.next(1)));
  if (flags & 4) setup.max_non_split_rounding = Bytes::mib(20 + static_cast<std::int64_t>(in.next(1)));
  if (flags & 8) setup.roundup_power2_divisions.assign(16, std::int64_t{1} << (in.next(1) % 4));
  if (flags & 16) setup.garbage_collection_threshold = 0.01 * static_cast<double>(1 + in.next(1) % 99);
  return setup;
}

/// Between a byte and 128 MiB, small ones more often.
std::int64_t size_of(Choices& in) {
  const std::uint64_t scale = in.next(1) % 20, low = in.next(1);
  return static_cast<std::int64_t>((low + 1) << scale);
}

void expect(bool holds, const char* what) {
  if (!holds) throw Finding(what);
}

/// The request of every block that is handed out, by the block's number; 0 of the others.
using Requests = std::vector<std::int64_t>;

void check_state(const CachingAllocator& allocator, const Requests& requests, std::size_t live) {
  std::int64_t reserved = 0, allocated = 0, requested = 0;
  std::uint64_t free_from = 0;
  std::size_t seen = 0;
  for (const SegmentView& s : allocator.segments()) {
    expect(s.address >= free_from, "segments overlap or are not in order");
    std::uint64_t at = s.address;
    for (const BlockView& b : s.blocks) {
      expect(b.address == at, "a segment has a gap");
      expect(b.bytes > 0, "a block without bytes");
      at += static_cast<std::uint64_t>(b.bytes);
      const auto number = static_cast<std::size_t>(b.id);
      const std::int64_t request = b.id != no_block && number < requests.size() ? requests[number] : 0;
      expect(b.allocated == (request != 0), "a block is handed out and nobody has it, or the reverse");
      if (request == 0) continue;
      ++seen;
      expect(b.bytes >= request && b.requested == request, "a block is smaller than its request");
      allocated += b.bytes, requested += b.requested;
    }
    free_from = s.address + static_cast<std::uint64_t>(s.bytes);
    expect(at == free_from, "the blocks of a segment are not its bytes");
    reserved += s.bytes;
  }
  expect(seen == live, "a live block is in no segment");
  const PoolStats& all = allocator.stats().all;
  expect(all.reserved_bytes.current == reserved, "reserved_bytes is not the sum of segments");
  expect(all.allocated_bytes.current == allocated, "allocated_bytes is not the sum of blocks");
  expect(all.requested_bytes.current == requested, "requested_bytes is not the sum of requests");
  expect(all.reserved_bytes.peak >= reserved && all.allocated_bytes.peak >= allocated, "a peak is below its counter");
}

}  // namespace

void fuzz_allocator(std::string_view bytes) {
  Choices in(bytes);
  AllocatorConstants of_version = constants;
  const AllocatorSetup setup = setup_of(in, of_version);
  const Bytes total = Bytes::mib(64 + static_cast<std::int64_t>(in.next(1)) * 8);
  const auto made = catching([&] { return CachingAllocator(setup, of_version, DeviceMemory(total, Bytes(0))); });
  if (!made) return expect_told(made.error());
  CachingAllocator allocator = *made;
  Requests requests;
  std::vector<BlockId> live;
  for (std::size_t event = 0; !in.done(); ++event) {
    const std::uint64_t what = in.next(1);
    if (what % 8 < 4) {
      const std::int64_t size = size_of(in);
      const BlockId block = allocator.malloc(size, static_cast<std::int32_t>(what / 8 % 3));
      if (block != no_block) {
        const auto number = static_cast<std::size_t>(block);
        if (number >= requests.size()) requests.resize(number + 1);
        expect(requests[number] == 0, "a block was handed out twice");
        requests[number] = size;
        live.push_back(block);
      }
    } else if (what % 8 < 7 && !live.empty()) {
      const auto at = live.begin() + static_cast<std::ptrdiff_t>(in.next(1) % live.size());
      allocator.free(*at);
      requests[static_cast<std::size_t>(*at)] = 0;
      std::iter_swap(at, live.end() - 1);
      live.pop_back();
    } else if (what % 8 == 7) {
      allocator.empty_cache();
    }
    // What breaks stays broken for some events; to look at every state would be nearly all of the time.
    if (event % 64 == 0) check_state(allocator, requests, live.size());
  }
  check_state(allocator, requests, live.size());
  for (const BlockId block : live) allocator.free(block);
  allocator.empty_cache();
  check_state(allocator, {}, 0);
  expect(allocator.stats().all.reserved_bytes.current == 0, "the cache keeps memory when it is emptied");
}

}  // namespace memplan::fuzz
