// The driver beneath the caching allocator: a capacity in bytes and an address space.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan {

/// Memory of one device as one process sees it. Driver allocations have a granularity of 2 MiB; addresses count from 0
/// and the lowest free one is taken. A driver promises no order, and the caching allocator takes the lower one of two
/// free blocks that fit as well, so the order decides which blocks are split: reserved bytes depend on it. Memory
/// snapshots of real processes show another one: ranges of whole 32 MiB, each below the one before, whose rests serve
/// what fits into them, the lowest rest first. That is the order with `falling`.
class DeviceMemory {
 public:
  static constexpr std::int64_t granularity = 2 << 20;

  /// `total` is what the driver reports, `context` what the process cannot allocate of it.
  DeviceMemory(Bytes total, Bytes context, bool falling = false)
      : total_(total.count), capacity_(total.count - context.count), falling_(falling) {}

  std::int64_t total() const { return total_; }
  std::int64_t used() const { return used_; }

  /// cudaMalloc: an address, or nothing when memory is out.
  std::optional<std::uint64_t> allocate(std::int64_t bytes);
  void release(std::uint64_t address, std::int64_t bytes);

  /// cuMemAddressReserve / Free: addresses without memory.
  std::uint64_t reserve_addresses(std::int64_t bytes);
  void release_addresses(std::uint64_t address, std::int64_t bytes);

  /// cuMemCreate / cuMemRelease: memory without addresses. False when memory is out.
  bool charge(std::int64_t bytes);
  void refund(std::int64_t bytes) { used_ -= bytes; }

 private:
  struct Range {
    std::uint64_t begin, end;
  };
  std::int64_t total_ = 0, capacity_ = 0, used_ = 0;
  bool falling_ = false;
  std::uint64_t top_ = 0;              ///< addresses from here on were never handed out
  std::uint64_t bottom_ = 1ULL << 56;  ///< likewise those below, where they fall
  std::vector<Range> holes_;           ///< free ranges between the two, ascending, never adjacent
};

}  // namespace memplan
