// ONNX Runtime's arena on the device: best fit with coalescing (onnxruntime/core/framework/bfc_arena.cc, 1.31).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/runtime/allocator.h"
#include "estimators/setup/onnxruntime.h"

namespace memplan::ort {

/// Of requests that the arena passes on to the driver as they are (Reserve): they never share a region.
inline constexpr std::int32_t reserved_stream = -1;

/// A request on a stream only takes free blocks of that stream or of none. Blocks of a stream that is gone belong to
/// none; a request on a new stream says that the one before is gone, because every run has a stream of its own. Stream
/// 0 is none (weights).
class Arena final : public Allocator {
 public:
  /// `capacity`: what the driver has for the arena.
  Arena(const OrtSetup& setup, Bytes capacity);

  Placement allocate(const Request& request) override;
  void free(BlockId block) override;
  /// What shrinkage does after a run: regions without a block in use go back to the driver.
  void empty_cache() override;

  Usage usage() const override { return usage_; }
  AllocatorTotals totals() const override { return {static_cast<std::int64_t>(regions_.size()), 0}; }
  std::vector<SegmentView> segments() const override;
  void record_segments(std::vector<SegmentEvent>* log) override { log_ = log; }

 private:
  struct Chunk {
    std::int64_t bytes = 0, requested = 0;
    BlockId id = no_block;  ///< no_block: free
    std::int32_t stream = 0;
    bool first = false, last = false;  ///< of its region
  };
  using Chunks = std::map<std::uint64_t, Chunk>;  ///< by address; neighbours of a region follow each other

  bool extend(std::int64_t bytes);
  std::int64_t region_for(std::int64_t bytes, std::int64_t room);
  Placement take(std::int64_t rounded, const Request& request);
  Placement hand_out(Chunks::iterator chunk, std::int64_t rounded, const Request& request);
  void enter(std::int32_t stream);
  Placement reserve(std::int64_t bytes);
  std::uint64_t add_region(std::int64_t bytes);
  void drop_region(std::uint64_t at);
  Chunks::iterator join_next(Chunks::iterator chunk);
  void put_free(Chunks::iterator chunk) { free_.emplace(chunk->second.bytes, chunk->first); }
  void take_free(Chunks::iterator chunk) { free_.erase({chunk->second.bytes, chunk->first}); }

  OrtSetup setup_;
  std::int64_t limit_, capacity_, next_region_;
  std::int32_t stream_ = 0;
  Chunks chunks_;
  std::set<std::pair<std::int64_t, std::uint64_t>> free_;  ///< by size, then by address: the order of the search
  std::map<std::uint64_t, std::int64_t> regions_;
  std::uint64_t first_region_ = 0, next_address_ = std::uint64_t{1} << 40;
  std::vector<std::uint64_t> address_of_;  ///< by block
  Usage usage_;
  std::vector<SegmentEvent>* log_ = nullptr;
};

}  // namespace memplan::ort
