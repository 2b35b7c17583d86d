// How PyTorch's CUDA caching allocator rounds a request and sizes the segment it takes from the driver.
// Source of the rules: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h. The sizes are those of a
// version (TorchProfile::allocator).
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "estimators/setup/setup.h"

namespace memplan {

/// What a version of PyTorch has compiled into its allocator, in bytes.
struct AllocatorConstants {
  std::int64_t min_block = 0;         ///< every block is a multiple of this
  std::int64_t small_limit = 0;       ///< rounded requests up to here use the small pool
  std::int64_t small_segment = 0;     ///< segment of the small pool
  std::int64_t own_segment_from = 0;  ///< from here a request gets a segment of its own size
  std::int64_t own_segment_step = 0;  ///< which is rounded up to this
  std::int64_t large_segment = 0;     ///< segment of the large pool unless the setup says otherwise
  /// Of free blocks of one size the one that was made first is taken, wherever it lies; else the lowest address.
  bool oldest_first = false;
};

/// AllocatorSetup with the defaults filled in, checked, in plain integers for the hot loop. All sizes in bytes.
struct AllocatorRules : AllocatorConstants {
  std::int64_t max_split = std::numeric_limits<std::int64_t>::max();  ///< blocks from here on are never split
  std::int64_t max_non_split_rounding = 0;   ///< how much larger than an oversize request a block may be
  std::array<std::int64_t, 16> divisions{};  ///< per power of two from 1 MiB to 32 GiB; 0 and 1: off
  bool any_divisions = false;
  bool expandable = false;
  double gc_threshold = 0;
  bool limited = false;  ///< a memory fraction is set
  double memory_fraction = 1.0;
};

/// Fails with ErrorKind::usage where PyTorch would refuse the settings.
AllocatorRules rules_of(const AllocatorSetup& setup, const AllocatorConstants& constants);

/// Bytes of the block that a request of `bytes` looks for.
std::int64_t round_request(std::int64_t bytes, const AllocatorRules& rules);

/// Bytes asked of the driver when no free block serves a rounded request.
std::int64_t segment_bytes(std::int64_t rounded, const AllocatorRules& rules);

}  // namespace memplan
