#include "estimators/runtime/ort/arena.h"

#include <algorithm>

namespace memplan::ort {

namespace {

constexpr std::int64_t granule = 256;                           // kMinAllocationSize
constexpr std::int64_t largest_double = std::int64_t{1} << 30;  // DEFAULT_MAX_POWER_OF_TWO_EXTEND_BYTES

std::int64_t rounded_up(std::int64_t n) { return checked_add(n, granule - 1) / granule * granule; }

}  // namespace

Arena::Arena(const OrtSetup& setup, Bytes capacity)
    : setup_(setup),
      limit_(setup.memory_limit ? setup.memory_limit->count : INT64_MAX),
      capacity_(capacity.count),
      next_region_(rounded_up(std::min(limit_ - granule, setup.initial_chunk.count))) {}

Placement Arena::reserve(std::int64_t bytes) {
  if (bytes > capacity_ - usage_.reserved) return {};
  const std::uint64_t at = add_region(bytes);
  Chunk whole{bytes, bytes, static_cast<BlockId>(address_of_.size()), reserved_stream, true, true};
  chunks_.emplace(at, whole);
  address_of_.push_back(at);
  usage_.requested += bytes;
  usage_.allocated += bytes;
  return {whole.id, at, bytes};
}

std::uint64_t Arena::add_region(std::int64_t bytes) {
  const std::uint64_t at = next_address_;
  next_address_ += static_cast<std::uint64_t>(rounded_up(bytes)) + (std::uint64_t{1} << 30);
  regions_[at] = bytes;
  usage_.reserved += bytes;
  if (log_) log_->push_back({SegmentEvent::Kind::alloc, at, bytes, 0});
  return at;
}

Placement Arena::allocate(const Request& request) {
  if (request.stream == reserved_stream) return reserve(request.bytes);
  enter(request.stream);
  const std::int64_t rounded = rounded_up(request.bytes);
  Placement placed = take(rounded, request);
  if (placed.block == no_block && extend(rounded)) placed = take(rounded, request);
  return placed;
}

Placement Arena::take(std::int64_t rounded, const Request& request) {
  for (auto it = free_.lower_bound({rounded, 0}); it != free_.end(); ++it) {
    const auto chunk = chunks_.find(it->second);
    if (chunk->second.stream != 0 && chunk->second.stream != request.stream) continue;
    free_.erase(it);
    return hand_out(chunk, rounded, request);
  }
  return {};
}

Placement Arena::hand_out(Chunks::iterator at, std::int64_t rounded, const Request& request) {
  Chunk& chunk = at->second;
  if (chunk.bytes >= 2 * rounded || chunk.bytes - rounded >= setup_.max_dead.count) {
    Chunk rest{chunk.bytes - rounded, 0, no_block, chunk.stream, false, chunk.last};
    chunk.bytes = rounded;
    chunk.last = false;
    put_free(chunks_.emplace(at->first + static_cast<std::uint64_t>(rounded), rest).first);
  }
  if (chunk.stream == 0) chunk.stream = request.stream;
  chunk.requested = request.bytes;
  chunk.id = static_cast<BlockId>(address_of_.size());
  address_of_.push_back(at->first);
  usage_.requested += chunk.requested;
  usage_.allocated += chunk.bytes;
  return {chunk.id, at->first, chunk.bytes};
}

/// How large a region the driver is asked for.
std::int64_t Arena::region_for(std::int64_t bytes, std::int64_t room) {
  if (setup_.extend == ArenaExtend::same_as_requested) return bytes;
  bool grown = false;
  while (bytes > next_region_) {
    next_region_ = checked_mul(next_region_, 2);
    grown = true;
  }
  const std::int64_t size = std::min(next_region_, room);
  if (!grown)
    next_region_ = next_region_ * 2 < largest_double ? next_region_ * 2 : std::max(next_region_, largest_double);
  return size;
}

bool Arena::extend(std::int64_t bytes) {
  const std::int64_t room = (limit_ - usage_.reserved) / granule * granule;
  if (bytes > room) return false;
  std::int64_t size = region_for(bytes, room);
  // The driver refuses: a tenth less, until it is less than what is needed (kBackpedalFactor is a float).
  while (size > capacity_ - usage_.reserved) {
    size = rounded_up(static_cast<std::int64_t>(static_cast<float>(size) * 0.9f));
    if (size < bytes || size < 8 * 1024) return false;
  }
  const std::uint64_t at = add_region(size);
  if (first_region_ == 0) first_region_ = at;
  put_free(chunks_.emplace(at, Chunk{size, 0, no_block, 0, true, true}).first);
  return true;
}

/// Joins a free block with the one behind it where that is free too and of the same stream.
Arena::Chunks::iterator Arena::join_next(Chunks::iterator at) {
  const auto next = std::next(at);
  if (at->second.last || next == chunks_.end() || next->second.id != no_block ||
      next->second.stream != at->second.stream)
    return at;
  take_free(next);
  at->second.bytes += next->second.bytes;
  at->second.last = next->second.last;
  chunks_.erase(next);
  return at;
}

void Arena::free(BlockId block) {
  auto at = chunks_.find(address_of_[static_cast<std::size_t>(block)]);
  Chunk& chunk = at->second;
  usage_.requested -= chunk.requested;
  usage_.allocated -= chunk.bytes;
  if (chunk.stream == reserved_stream) return drop_region(at->first);
  chunk.id = no_block;
  chunk.requested = 0;
  at = join_next(at);
  if (!at->second.first) {
    const auto before = std::prev(at);
    if (before->second.id == no_block && before->second.stream == at->second.stream) {
      take_free(before);
      put_free(at);  // join_next takes it out
      at = join_next(before);
    }
  }
  put_free(at);
}

/// Gives it back to the driver; its chunks are none of those that are free.
void Arena::drop_region(std::uint64_t at) {
  const auto region = regions_.find(at);
  const std::int64_t size = region->second;
  chunks_.erase(chunks_.find(at), chunks_.lower_bound(at + static_cast<std::uint64_t>(size)));
  usage_.reserved -= size;
  if (log_) log_->push_back({SegmentEvent::Kind::free, at, size, 0});
  regions_.erase(region);
}

/// A stream that is gone leaves its blocks to everyone, and free neighbours join.
void Arena::enter(std::int32_t stream) {
  if (stream == 0 || stream == stream_) return;
  stream_ = stream;
  for (auto& [address, chunk] : chunks_)
    if (chunk.stream != reserved_stream) chunk.stream = 0;
  for (auto at = chunks_.begin(); at != chunks_.end(); ++at) {
    if (at->second.id != no_block) continue;
    take_free(at);
    for (std::size_t before = 0; before != chunks_.size();) {
      before = chunks_.size();
      at = join_next(at);
    }
    put_free(at);
  }
}

void Arena::empty_cache() {
  for (auto region = regions_.begin(); region != regions_.end();) {
    const auto [at, size] = *region++;
    const auto begin = chunks_.find(at), end = chunks_.lower_bound(at + static_cast<std::uint64_t>(size));
    const bool in_use = std::any_of(begin, end, [](const auto& c) { return c.second.id != no_block; });
    // kNextPowerOfTwo keeps its first region.
    const bool keeps = setup_.extend == ArenaExtend::next_power_of_two && at == first_region_;
    if (in_use || keeps) continue;
    for (auto c = begin; c != end; ++c) take_free(c);
    drop_region(at);
  }
  next_region_ = setup_.growth_chunk.count;
}

std::vector<SegmentView> Arena::segments() const {
  std::vector<SegmentView> out;
  for (const auto& [address, size] : regions_) {
    SegmentView view{address, size, 0, false, false, {}};
    const auto end = chunks_.lower_bound(address + static_cast<std::uint64_t>(size));
    for (auto c = chunks_.find(address); c != end; ++c)
      view.blocks.push_back({c->second.id, c->first, c->second.bytes, c->second.requested, c->second.id != no_block});
    out.push_back(std::move(view));
  }
  return out;
}

}  // namespace memplan::ort
