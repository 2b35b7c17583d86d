// Returning cached memory to the driver: garbage collection, oversize blocks, the whole cache.
#include "estimators/runtime/torch/allocator/caching_allocator.h"

namespace memplan {

void CachingAllocator::release_segment(BlockId id) {
  const Block b = at(id);
  memory_.release(b.address, b.size);
  for (PoolStats* stats : {&stats_.all, &stats_of(b.small)}) {
    stats->segment.subtract(1);
    stats->reserved_bytes.subtract(b.size);
  }
  if (b.size >= rules_.max_split) stats_.oversize_segments.subtract(1);
  ++stats_.num_device_free;
  log(SegmentEvent::Kind::free, b.address, b.size, b.stream);
  remove_free(id);
  recycle(id);
}

/// garbage_collection_threshold: before the reserved memory grows past the threshold, whole cached segments of at least
/// the mean age are given back, repeatedly until enough is free. Age is counted in look-ups since the block was freed.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<std::int64_t>(rules_.gc_threshold * static_cast<double>(limit_));
  const std::int64_t reserved = stats_.all.reserved_bytes.current;
  if (reserved <= threshold) return;
  const std::int64_t target = reserved - threshold;

  std::vector<BlockId> candidates;
  std::int64_t total_age = 0;
  auto age = [&](BlockId id) { return large_.lookups - at(id).freed_at; };
  for (const auto& stream : large_.streams) {
    for (auto p = stream.free.begin(); p != stream.free.end(); p = stream.free.next(p)) {
      const BlockId id = stream.free.at(p).block;
      if (is_split(at(id)) || at(id).arena >= 0) continue;
      candidates.push_back(id);
      total_age += age(id);
    }
  }
  std::int64_t reclaimed = 0;
  bool released = true;
  while (reclaimed < target && released && !candidates.empty()) {
    const double mean = static_cast<double>(total_age) / static_cast<double>(candidates.size());
    released = false;
    std::vector<BlockId> kept;
    for (const BlockId id : candidates) {
      if (static_cast<double>(age(id)) < mean) {
        kept.push_back(id);
        continue;
      }
      released = true;
      reclaimed += at(id).size;
      total_age -= age(id);
      release_segment(id);
    }
    candidates = std::move(kept);
  }
}

/// With a finite max_split_size: gives back one oversize block that is large enough, or several from the largest down.
bool CachingAllocator::release_oversize(Pool& pool, std::int32_t stream, std::int64_t size) {
  if (rules_.max_split == std::numeric_limits<std::int64_t>::max()) return false;
  if (rules_.expandable) return false;  // such blocks cannot be given back one by one
  FreeBlocks& free = stream_of(pool, stream).free;
  const std::int64_t wanted = std::max(size, rules_.max_split);
  const auto position = free.lower_bound(wanted, 0);
  if (position != free.end()) {
    release_segment(free.at(position).block);
    return true;
  }
  std::int64_t released = 0;
  while (released < wanted && !free.empty()) {
    const auto largest = free.at(free.previous(free.end()));
    if (largest.size < rules_.max_split) break;
    released += largest.size;
    release_segment(largest.block);
  }
  return released >= wanted;
}

void CachingAllocator::release_pool(Pool& pool) {
  for (std::size_t s = 0; s < pool.streams.size(); ++s) {
    const FreeBlocks& free = pool.streams[s].free;
    std::vector<BlockId> whole, partial;
    for (auto p = free.begin(); p != free.end(); p = free.next(p)) {
      const BlockId id = free.at(p).block;
      if (at(id).arena >= 0) {
        partial.push_back(id);
      } else if (!is_split(at(id))) {
        whole.push_back(id);
      }
    }
    for (const BlockId id : whole) release_segment(id);
    for (const BlockId id : partial) unmap_inside(id);
  }
}

void CachingAllocator::empty_cache() {
  // The device is waited for, so blocks that other streams used are free now.
  while (!waiting_.empty()) complete_free(waiting_.front());
  release_pool(large_);
  release_pool(small_);
}

}  // namespace memplan
