#include "estimators/runtime/torch/allocator/caching_allocator.h"

#include <cmath>

namespace memplan {

CachingAllocator::CachingAllocator(const AllocatorSetup& setup, const AllocatorConstants& constants,
                                   DeviceMemory memory)
    : rules_(rules_of(setup, constants)), memory_(std::move(memory)) {
  limit_ = rules_.limited ? static_cast<std::int64_t>(rules_.memory_fraction * static_cast<double>(memory_.total()))
                          : std::numeric_limits<std::int64_t>::max();
}

// ---------------------------------------------------------------- bookkeeping of blocks

CachingAllocator::StreamBlocks& CachingAllocator::stream_of(Pool& pool, std::int32_t stream) {
  for (auto& entry : pool.streams)
    if (entry.stream == stream) return entry;
  auto at = std::find_if(pool.streams.begin(), pool.streams.end(), [&](const auto& e) { return e.stream > stream; });
  return *pool.streams.insert(at, StreamBlocks{stream, {}, {}});
}

BlockId CachingAllocator::new_block(std::uint64_t address, std::int64_t size, std::int32_t stream, bool small,
                                    std::int32_t arena) {
  BlockId id;
  if (spare_.empty()) {
    id = static_cast<BlockId>(blocks_.size());
    blocks_.emplace_back();
  } else {
    id = spare_.back();
    spare_.pop_back();
    at(id) = Block{};
  }
  Block& b = at(id);
  b.made = ++made_;
  b.address = address;
  b.size = size;
  b.stream = stream;
  b.small = small;
  b.arena = arena;
  return id;
}

void CachingAllocator::add_free(BlockId id) {
  Block& b = at(id);
  Pool& pool = pool_of(b.small);
  b.freed_at = pool.lookups;
  stream_of(pool, b.stream).free.insert(b.size, rank(b), id);
}

void CachingAllocator::remove_free(BlockId id) {
  const Block& b = at(id);
  stream_of(pool_of(b.small), b.stream).free.erase(b.size, rank(b));
}

/// Puts `middle` between `left` and its right neighbour.
void CachingAllocator::link_after(BlockId left, BlockId middle) {
  at(middle).previous = left;
  at(middle).next = at(left).next;
  if (at(middle).next != no_block) at(at(middle).next).previous = middle;
  at(left).next = middle;
}

/// Merges a neighbour into `into` where both can; returns the bytes gained.
std::int64_t CachingAllocator::absorb(BlockId into, BlockId neighbour) {
  if (neighbour == no_block) return 0;
  Block& b = at(into);
  const Block n = at(neighbour);
  if (n.state != State::free || n.mapped != b.mapped) return 0;
  if (n.mapped)
    remove_free(neighbour);
  else
    remove_unmapped(neighbour);
  if (b.previous == neighbour) {
    b.address = n.address;
    b.previous = n.previous;
    if (b.previous != no_block) at(b.previous).next = into;
  } else {
    b.next = n.next;
    if (b.next != no_block) at(b.next).previous = into;
  }
  b.size += n.size;
  recycle(neighbour);
  return n.size;
}

// ---------------------------------------------------------------- malloc

BlockId CachingAllocator::malloc(std::int64_t bytes, std::int32_t stream) {
  const std::int64_t size = round_request(bytes, rules_);
  const std::int64_t segment = segment_bytes(size, rules_);
  const bool small = size <= rules_.small_limit;
  Pool& pool = pool_of(small);

  BlockId block = best_fit(pool, stream, size);
  if (block == no_block) {
    if (rules_.limited && rules_.gc_threshold > 0) collect_garbage();
    block = new_segment(pool, stream, size, segment);
    if (block == no_block && release_oversize(pool, stream, size)) block = new_segment(pool, stream, size, segment);
    if (block == no_block) {
      empty_cache();
      ++stats_.num_alloc_retries;
      block = new_segment(pool, stream, size, segment);
    }
    if (block == no_block) {
      ++stats_.num_ooms;
      return no_block;
    }
  }
  return hand_out(block, size, bytes);
}

/// Smallest sufficient free block, the first by rank() among equals; it leaves the cache.
BlockId CachingAllocator::best_fit(Pool& pool, std::int32_t stream, std::int64_t size) {
  if (rules_.limited && rules_.gc_threshold > 0) ++pool.lookups;
  FreeBlocks& free = stream_of(pool, stream).free;
  auto position = free.lower_bound(size, 0);
  if (position == free.end()) return no_block;
  if (rules_.expandable) {
    // A block at the growing end counts with the address space behind it, so that holes inside are preferred.
    auto room = [&](FreeBlocks::Position p) {
      const Block& b = at(free.at(p).block);
      return b.size + (b.next != no_block && !at(b.next).mapped ? at(b.next).size : 0);
    };
    for (auto next = free.next(position); next != free.end() && room(next) < room(position); next = free.next(next))
      position = next;
  }
  const auto& found = free.at(position);
  // Blocks from max_split on are kept whole for requests of about their size. Only the first candidate is looked at.
  if (size < rules_.max_split && found.size >= rules_.max_split) return no_block;
  if (size >= rules_.max_split && found.size >= size + rules_.max_non_split_rounding) return no_block;
  const BlockId block = found.block;
  free.erase(position);
  return block;
}

BlockId CachingAllocator::new_segment(Pool& pool, std::int32_t stream, std::int64_t size, std::int64_t segment) {
  // Expandable memory is held to the fraction by the segment it would have taken, too.
  if (rules_.limited && segment > limit_ - stats_.all.reserved_bytes.current) return no_block;
  if (rules_.expandable) return grow_arena(pool, stream, size);
  const auto address = memory_.allocate(segment);
  if (!address) return no_block;
  for (PoolStats* stats : {&stats_.all, &stats_of(pool.small)}) {
    stats->segment.add(1);
    stats->reserved_bytes.add(segment);
  }
  if (segment >= rules_.max_split) stats_.oversize_segments.add(1);
  ++stats_.num_device_alloc;
  log(SegmentEvent::Kind::alloc, *address, segment, stream);
  return new_block(*address, segment, stream, pool.small, -1);
}

/// Gives out the front of `block`; a remainder that is worth it goes back to the cache.
BlockId CachingAllocator::hand_out(BlockId block, std::int64_t size, std::int64_t requested) {
  const bool small = at(block).small;
  const bool counts_as_split = !rules_.expandable;  // PyTorch leaves expandable memory out of inactive_split
  const bool was_split = is_split(at(block));
  PoolStats& own = stats_of(small);
  const std::int64_t rest = at(block).size - size;
  // Large blocks of cudaMalloc keep up to 1 MiB of slack: splitting it off would only scatter the segment.
  const bool split =
      small || rules_.expandable ? rest >= rules_.min_block : size < rules_.max_split && rest > rules_.small_limit;
  if (split) {
    const Block& whole = at(block);
    const BlockId tail =
        new_block(whole.address + static_cast<std::uint64_t>(size), rest, whole.stream, small, whole.arena);
    at(block).size = size;
    std::swap(at(block).made, at(tail).made);  // in PyTorch the front is the new one
    link_after(block, tail);
    add_free(tail);
    if (counts_as_split) {
      for (PoolStats* stats : {&stats_.all, &own}) {
        if (was_split) {
          stats->inactive_split_bytes.subtract(size);
        } else {
          stats->inactive_split_bytes.add(rest);
          stats->inactive_split.add(1);
        }
      }
    }
  } else if (was_split && counts_as_split) {
    for (PoolStats* stats : {&stats_.all, &own}) {
      stats->inactive_split_bytes.subtract(at(block).size);
      stats->inactive_split.subtract(1);
    }
  }
  Block& b = at(block);
  b.state = State::allocated;
  b.requested = requested;
  for (PoolStats* stats : {&stats_.all, &own}) {
    stats->allocation.add(1);
    stats->allocated_bytes.add(b.size);
    stats->active.add(1);
    stats->active_bytes.add(b.size);
    stats->requested_bytes.add(requested);
  }
  if (b.size >= rules_.max_split) stats_.oversize_allocations.add(1);
  return block;
}

// ---------------------------------------------------------------- free

void CachingAllocator::drop(Block& b) {
  for (PoolStats* stats : {&stats_.all, &stats_of(b.small)}) {
    stats->allocation.subtract(1);
    stats->allocated_bytes.subtract(b.size);
  }
  if (b.size >= rules_.max_split) stats_.oversize_allocations.subtract(1);
}

void CachingAllocator::free(BlockId block) {
  drop(at(block));
  rejoin(block);
}

void CachingAllocator::request_free(BlockId block) {
  drop(at(block));
  at(block).state = State::waiting;
  waiting_.push_back(block);
}

void CachingAllocator::complete_free(BlockId block) {
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), block));
  rejoin(block);
}

/// Into the cache, merged with its free neighbours.
void CachingAllocator::rejoin(BlockId block) {
  const std::int64_t size = at(block).size, requested = at(block).requested;
  at(block).state = State::free;
  std::int64_t splits = 0, split_bytes = 0;
  const BlockId neighbours[] = {at(block).previous, at(block).next};
  for (const BlockId neighbour : neighbours) {
    const std::int64_t gained = absorb(block, neighbour);
    if (gained > 0) {
      --splits;
      split_bytes -= gained;
    }
  }
  add_free(block);
  const Block& b = at(block);
  if (is_split(b)) {
    ++splits;
    split_bytes += b.size;
  }
  for (PoolStats* stats : {&stats_.all, &stats_of(b.small)}) {
    if (b.arena < 0) {
      stats->inactive_split.change(splits);
      stats->inactive_split_bytes.change(split_bytes);
    }
    stats->active.subtract(1);
    stats->active_bytes.subtract(size);
    stats->requested_bytes.subtract(requested);
  }
}

}  // namespace memplan
