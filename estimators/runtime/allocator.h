// What replaying a schedule asks of an allocator, whatever runtime it belongs to.
#pragma once

#include <cstdint>
#include <vector>

namespace memplan {

/// A block that is handed out: an index of the allocator's own, the same until the block is freed.
using BlockId = std::int32_t;
inline constexpr BlockId no_block = -1;

/// What the allocator asked of the driver, in order; the actions of a memory snapshot's trace.
struct SegmentEvent {
  enum class Kind : std::uint8_t { alloc, free, map, unmap } kind;
  std::uint64_t address;
  std::int64_t bytes;
  std::int32_t stream;
};

/// A piece of a segment. Free pieces between blocks in use are what fragmentation is made of.
struct BlockView {
  BlockId id;
  std::uint64_t address;
  std::int64_t bytes, requested;  ///< requested: 0 where free
  bool allocated;
};

/// What one request to the driver gave, or one range of addresses that is mapped without a gap.
struct SegmentView {
  std::uint64_t address;
  std::int64_t bytes;
  std::int32_t stream;
  bool small, expandable;
  std::vector<BlockView> blocks;  ///< by address, without gaps
};

/// One request of the program.
struct Request {
  std::int64_t bytes = 0;  ///< more than 0
  std::int32_t stream = 0;
  std::int32_t allocation = 0;  ///< index into Schedule::allocations: an arena that was planned ahead knows its place
};

/// Where it was put.
struct Placement {
  BlockId block = no_block;  ///< no_block: memory is out
  std::uint64_t address = 0;
  std::int64_t bytes = 0;  ///< of the block, not less than requested
};

/// Current bytes: asked for, handed out, taken from the driver.
struct Usage {
  std::int64_t requested = 0, allocated = 0, reserved = 0;
};

struct AllocatorTotals {
  std::int64_t segments = 0;  ///< held now
  std::int64_t retries = 0;   ///< how often cached memory was given back to serve a request
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  /// The state stays valid where memory is out.
  virtual Placement allocate(const Request& request) = 0;
  virtual void free(BlockId block) = 0;
  /// The program asks for cached memory to be given back; nothing where there is no cache.
  virtual void empty_cache() {}

  virtual Usage usage() const = 0;
  virtual AllocatorTotals totals() const = 0;

  /// Everything that is reserved now, by address.
  virtual std::vector<SegmentView> segments() const = 0;
  /// Starts (or stops, with nullptr) recording what is asked of the driver.
  virtual void record_segments(std::vector<SegmentEvent>* log) = 0;
};

}  // namespace memplan
