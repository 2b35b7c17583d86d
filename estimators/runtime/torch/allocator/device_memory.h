// The driver beneath the caching allocator: a capacity in bytes and an address space.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "estimators/base/bytes.h"

namespace memplan {

/// Memory of one device as one process sees it. Driver allocations have a granularity of 2 MiB; addresses count from 0
/// and the lowest free one is taken. A driver promises no order; a fixed one makes ties between equal blocks
/// reproducible, and it is the order that small processes show on real devices.
class DeviceMemory {
 public:
  static constexpr std::int64_t granularity = 2 << 20;

  /// `total` is what the driver reports, `context` what the process cannot allocate of it.
  DeviceMemory(Bytes total, Bytes context) : total_(total.count), capacity_(total.count - context.count) {}

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
  std::uint64_t top_ = 0;     ///< addresses from here on were never handed out
  std::vector<Range> holes_;  ///< free ranges below top_, ascending, never adjacent
};

}  // namespace memplan
