// The free blocks of one pool and stream, ordered by (size, rank): best fit, and among equals the one that the
// version of PyTorch takes, which is the lowest address but in one version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "estimators/runtime/allocator.h"

namespace memplan {

/// A sorted list in chunks: an insertion moves at most one chunk, and a look-up touches two short arrays. A million
/// events go through here, and a node-based tree would spend its time on cache misses and on the heap.
class FreeBlocks {
 public:
  struct Entry {
    std::int64_t size;
    std::uint64_t rank;
    BlockId block;
    bool operator<(const Entry& other) const { return size != other.size ? size < other.size : rank < other.rank; }
  };
  struct Position {
    std::size_t chunk, index;
    bool operator==(const Position&) const = default;
  };

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  Position begin() const { return {0, 0}; }
  Position end() const { return {chunks_.size(), 0}; }
  const Entry& at(Position p) const { return chunks_[p.chunk][p.index]; }
  Position next(Position p) const {
    return p.index + 1 < chunks_[p.chunk].size() ? Position{p.chunk, p.index + 1} : Position{p.chunk + 1, 0};
  }
  Position previous(Position p) const {
    return p.index > 0 ? Position{p.chunk, p.index - 1} : Position{p.chunk - 1, chunks_[p.chunk - 1].size() - 1};
  }

  /// First entry that is not less than (size, rank), or end().
  Position lower_bound(std::int64_t size, std::uint64_t rank) const {
    const Entry key{size, rank, no_block};
    const std::size_t chunk = chunk_for(key);
    if (chunk == chunks_.size()) return end();
    const auto& c = chunks_[chunk];
    return {chunk, static_cast<std::size_t>(std::lower_bound(c.begin(), c.end(), key) - c.begin())};
  }

  void insert(std::int64_t size, std::uint64_t rank, BlockId block) {
    const Entry entry{size, rank, block};
    ++count_;
    if (chunks_.empty()) {
      chunks_.push_back({entry});
      return;
    }
    const std::size_t chunk = std::min(chunk_for(entry), chunks_.size() - 1);
    auto& c = chunks_[chunk];
    c.insert(std::lower_bound(c.begin(), c.end(), entry), entry);
    if (c.size() > chunk_limit) {
      std::vector<Entry> upper(c.begin() + chunk_limit / 2, c.end());
      c.resize(chunk_limit / 2);
      chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(chunk) + 1, std::move(upper));
    }
  }

  void erase(Position p) {
    auto& c = chunks_[p.chunk];
    c.erase(c.begin() + static_cast<std::ptrdiff_t>(p.index));
    --count_;
    if (c.empty()) chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(p.chunk));
  }
  void erase(std::int64_t size, std::uint64_t rank) { erase(lower_bound(size, rank)); }

 private:
  static constexpr std::size_t chunk_limit = 128;

  /// The first chunk whose last entry is not less than `key`; chunks are never empty.
  std::size_t chunk_for(const Entry& key) const {
    std::size_t low = 0, high = chunks_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (chunks_[middle].back() < key)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  std::vector<std::vector<Entry>> chunks_;
  std::size_t count_ = 0;
};

}  // namespace memplan
