// expandable_segments:True. One range of addresses per pool and stream, larger than the device; memory is mapped into
// it in granules where it is needed, so that there are no borders between segments.
#include "estimators/runtime/torch/allocator/caching_allocator.h"

namespace memplan {

void CachingAllocator::add_unmapped(BlockId id) {
  auto& list = stream_of(pool_of(at(id).small), at(id).stream).unmapped;
  list.insert(std::lower_bound(list.begin(), list.end(), at(id).address,
                               [&](BlockId other, std::uint64_t address) { return at(other).address < address; }),
              id);
}

void CachingAllocator::remove_unmapped(BlockId id) {
  auto& list = stream_of(pool_of(at(id).small), at(id).stream).unmapped;
  list.erase(std::find(list.begin(), list.end(), id));
}

/// The first place, by address, where free and unmapped space in a row holds `size` bytes; a new arena if there is
/// none.
BlockId CachingAllocator::find_growable(Pool& pool, std::int32_t stream, std::int64_t size) {
  for (BlockId start : stream_of(pool, stream).unmapped) {
    const BlockId before = at(start).previous;
    if (before != no_block && at(before).state == State::free) start = before;
    std::int64_t room = 0;
    for (BlockId b = start; b != no_block && at(b).state == State::free && room < size; b = at(b).next)
      room += at(b).size;
    if (room >= size) return start;
  }
  Arena arena;
  arena.granule = pool.small ? rules_.small_segment : rules_.large_segment;
  // An eighth more than the device has: holes that empty_cache left behind may be skipped.
  const std::int64_t wanted = memory_.total() + memory_.total() / 8;
  arena.bytes = (wanted + arena.granule - 1) / arena.granule * arena.granule;
  arena.base = memory_.reserve_addresses(arena.bytes);
  arenas_.push_back(arena);
  const BlockId block =
      new_block(arena.base, arena.bytes, stream, pool.small, static_cast<std::int32_t>(arenas_.size()) - 1);
  at(block).mapped = false;
  add_unmapped(block);
  return block;
}

/// A free block of at least `size` bytes that has left the cache, with memory mapped as far as was missing.
BlockId CachingAllocator::grow_arena(Pool& pool, std::int32_t stream, std::int64_t size) {
  BlockId block = find_growable(pool, stream, size);
  if (!at(block).mapped && !map_front(block, std::min(at(block).size, size))) return no_block;
  while (at(block).size < size) {
    const BlockId next = at(block).next;
    // What was mapped so far stays in the cache if this fails.
    if (!map_front(next, std::min(size - at(block).size, at(next).size))) return no_block;
    block = next;  // it absorbed `block`
  }
  remove_free(block);
  return block;
}

/// Maps whole granules at the front of an unmapped block for at least `size` bytes; the result is free and merged.
bool CachingAllocator::map_front(BlockId id, std::int64_t size) {
  const std::int64_t granule = arenas_[static_cast<std::size_t>(at(id).arena)].granule;
  const std::int64_t bytes = checked_add(size, granule - 1) / granule * granule;
  // PyTorch maps granule by granule and takes back what it has if one of them fails: all of them or none.
  if (!memory_.charge(bytes)) return false;
  remove_unmapped(id);
  at(id).mapped = true;
  const std::uint64_t address = at(id).address;
  if (bytes < at(id).size) {
    const Block whole = at(id);
    const BlockId rest = new_block(address + static_cast<std::uint64_t>(bytes), whole.size - bytes, whole.stream,
                                   whole.small, whole.arena);
    at(rest).mapped = false;
    at(id).size = bytes;
    link_after(id, rest);
    add_unmapped(rest);
  }
  absorb(id, at(id).previous);
  absorb(id, at(id).next);
  add_free(id);
  for (PoolStats* stats : {&stats_.all, &stats_of(at(id).small)}) stats->reserved_bytes.add(bytes);
  ++stats_.num_device_alloc;
  log(SegmentEvent::Kind::map, address, bytes, at(id).stream);
  return true;
}

/// Takes the memory from under the granules that lie wholly inside a free block.
void CachingAllocator::unmap_inside(BlockId id) {
  const Block whole = at(id);
  const Arena arena = arenas_[static_cast<std::size_t>(whole.arena)];
  const auto offset = static_cast<std::int64_t>(whole.address - arena.base);
  const std::int64_t begin = (offset + arena.granule - 1) / arena.granule * arena.granule;
  const std::int64_t end = (offset + whole.size) / arena.granule * arena.granule;
  if (begin >= end) return;
  remove_free(id);
  if (begin > offset) {  // keep the front
    const BlockId front = new_block(whole.address, begin - offset, whole.stream, whole.small, whole.arena);
    at(front).previous = whole.previous;
    if (whole.previous != no_block) at(whole.previous).next = front;
    at(front).next = id;
    at(id).previous = front;
    add_free(front);
  }
  if (end < offset + whole.size) {  // keep the end
    const BlockId back = new_block(arena.base + static_cast<std::uint64_t>(end), offset + whole.size - end,
                                   whole.stream, whole.small, whole.arena);
    link_after(id, back);
    add_free(back);
  }
  at(id).address = arena.base + static_cast<std::uint64_t>(begin);
  at(id).size = end - begin;
  at(id).mapped = false;
  memory_.refund(end - begin);
  absorb(id, at(id).previous);
  absorb(id, at(id).next);
  add_unmapped(id);
  for (PoolStats* stats : {&stats_.all, &stats_of(whole.small)}) stats->reserved_bytes.subtract(end - begin);
  ++stats_.num_device_free;
  log(SegmentEvent::Kind::unmap, arena.base + static_cast<std::uint64_t>(begin), end - begin, whole.stream);
  if (!is_split(at(id))) {  // nothing of the arena is mapped any more
    remove_unmapped(id);
    memory_.release_addresses(arena.base, arena.bytes);
    recycle(id);
  }
}

}  // namespace memplan
