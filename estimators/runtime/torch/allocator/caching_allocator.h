// A model of PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp): the same blocks at the same
// relative addresses, the same segments and the same counters for the same sequence of requests.
//
// Left out, because a static estimate has no use for them: private pools of CUDA graphs and MemPools, IPC, peer access,
// and the events of a running device (whoever calls decides when a block that other streams used is really free).
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/runtime/allocator.h"
#include "estimators/runtime/torch/allocator/device_memory.h"
#include "estimators/runtime/torch/allocator/free_blocks.h"
#include "estimators/runtime/torch/allocator/rounding.h"
#include "estimators/runtime/torch/allocator/stats.h"

namespace memplan {

class CachingAllocator {
 public:
  CachingAllocator(const AllocatorSetup& setup, const AllocatorConstants& constants, DeviceMemory memory);

  /// A block for `bytes` (more than 0) on `stream`, or no_block when memory is out even after the cache was given back.
  /// The state stays valid after a failure.
  BlockId malloc(std::int64_t bytes, std::int32_t stream);

  /// Both halves of a free: the block can be reused by its stream at once.
  void free(BlockId block);
  /// The program dropped the block, but other streams (record_stream) still use it: no longer allocated, still active.
  void request_free(BlockId block);
  /// Those streams are done: the block joins the cache.
  void complete_free(BlockId block);

  /// torch.cuda.empty_cache(): waits for other streams, then gives back every segment that is wholly free.
  void empty_cache();

  std::uint64_t address(BlockId block) const { return blocks_[static_cast<std::size_t>(block)].address; }
  std::int64_t block_bytes(BlockId block) const { return blocks_[static_cast<std::size_t>(block)].size; }
  const AllocatorStats& stats() const { return stats_; }

  /// Everything that is reserved now, by address. Of an arena, each range that is mapped without a gap, as PyTorch's
  /// snapshot has them.
  std::vector<SegmentView> segments() const;

  /// Starts (or stops, with nullptr) recording driver events.
  void record_segments(std::vector<SegmentEvent>* log) { log_ = log; }

 private:
  enum class State : std::uint8_t { free, allocated, waiting };
  struct Block {
    std::uint64_t address = 0;
    std::int64_t size = 0, requested = 0;
    std::uint64_t made = 0;     ///< number of the block among all that were made
    std::int64_t freed_at = 0;  ///< look-ups of the pool when it joined the cache: its age for garbage collection
    BlockId previous = no_block, next = no_block;  ///< neighbours in the segment
    std::int32_t stream = 0;
    std::int32_t arena = -1;  ///< index into arenas_; -1 for a segment of cudaMalloc
    State state = State::free;
    bool small = false;
    bool mapped = true;  ///< false: address space of an arena without memory
  };
  struct StreamBlocks {
    std::int32_t stream;
    FreeBlocks free;
    std::vector<BlockId> unmapped;  ///< by address
  };
  struct Pool {
    bool small;
    std::int64_t lookups = 0;
    std::vector<StreamBlocks> streams;  ///< by stream
  };
  /// Address space of an expandable segment; memory comes and goes in granules of the arena's pool.
  struct Arena {
    std::uint64_t base = 0;
    std::int64_t bytes = 0, granule = 0;
  };

  Block& at(BlockId id) { return blocks_[static_cast<std::size_t>(id)]; }
  Pool& pool_of(bool small) { return small ? small_ : large_; }
  StreamBlocks& stream_of(Pool& pool, std::int32_t stream);
  PoolStats& stats_of(bool small) { return small ? stats_.small_pool : stats_.large_pool; }
  void log(SegmentEvent::Kind kind, std::uint64_t address, std::int64_t bytes, std::int32_t stream) {
    if (log_) log_->push_back({kind, address, bytes, stream});
  }
  bool is_split(const Block& b) const { return b.previous != no_block || b.next != no_block; }

  /// What decides between free blocks of one size: the smallest is taken.
  std::uint64_t rank(const Block& b) const { return rules_.oldest_first ? b.made : b.address; }
  BlockId new_block(std::uint64_t address, std::int64_t size, std::int32_t stream, bool small, std::int32_t arena);
  void recycle(BlockId id) { spare_.push_back(id); }
  void add_free(BlockId id);
  void remove_free(BlockId id);
  void link_after(BlockId left, BlockId middle);
  std::int64_t absorb(BlockId into, BlockId neighbour);

  BlockId best_fit(Pool& pool, std::int32_t stream, std::int64_t size);
  BlockId new_segment(Pool& pool, std::int32_t stream, std::int64_t size, std::int64_t segment);
  BlockId hand_out(BlockId block, std::int64_t size, std::int64_t requested);
  void drop(Block& b);
  void rejoin(BlockId block);

  void collect_garbage();
  bool release_oversize(Pool& pool, std::int32_t stream, std::int64_t size);
  void release_pool(Pool& pool);
  void release_segment(BlockId id);

  BlockId grow_arena(Pool& pool, std::int32_t stream, std::int64_t size);
  BlockId find_growable(Pool& pool, std::int32_t stream, std::int64_t size);
  bool map_front(BlockId id, std::int64_t size);
  void unmap_inside(BlockId id);
  void add_unmapped(BlockId id);
  void remove_unmapped(BlockId id);

  AllocatorRules rules_;
  DeviceMemory memory_;
  std::uint64_t made_ = 0;  ///< blocks so far
  std::int64_t limit_ = 0;  ///< bytes that the memory fraction allows
  Pool small_{true, 0, {}}, large_{false, 0, {}};
  std::vector<Block> blocks_;
  std::vector<BlockId> spare_, waiting_;
  std::vector<Arena> arenas_;
  AllocatorStats stats_;
  std::vector<SegmentEvent>* log_ = nullptr;
};

}  // namespace memplan
