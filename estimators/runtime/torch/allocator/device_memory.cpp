#include "estimators/runtime/torch/allocator/device_memory.h"

#include <algorithm>

namespace memplan {
namespace {

constexpr std::uint64_t range_of_addresses = 32ULL << 20;  ///< of falling ones

std::int64_t whole_pages(std::int64_t bytes) {
  return checked_add(bytes, DeviceMemory::granularity - 1) / DeviceMemory::granularity * DeviceMemory::granularity;
}

}  // namespace

bool DeviceMemory::charge(std::int64_t bytes) {
  if (bytes > capacity_ - used_) return false;
  used_ += bytes;
  return true;
}

std::optional<std::uint64_t> DeviceMemory::allocate(std::int64_t bytes) {
  if (!charge(whole_pages(bytes))) return std::nullopt;
  return reserve_addresses(bytes);
}

void DeviceMemory::release(std::uint64_t address, std::int64_t bytes) {
  refund(whole_pages(bytes));
  release_addresses(address, bytes);
}

std::uint64_t DeviceMemory::reserve_addresses(std::int64_t bytes) {
  const auto need = static_cast<std::uint64_t>(whole_pages(bytes));
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->end - hole->begin < need) continue;
    const std::uint64_t address = hole->begin;
    hole->begin += need;
    if (hole->begin == hole->end) holes_.erase(hole);
    return address;
  }
  if (falling_) {
    const std::uint64_t range = (need + range_of_addresses - 1) / range_of_addresses * range_of_addresses;
    bottom_ -= range;
    if (range > need) holes_.insert(holes_.begin(), Range{bottom_ + need, bottom_ + range});
    return bottom_;
  }
  const std::uint64_t address = top_;
  top_ += need;
  return address;
}

void DeviceMemory::release_addresses(std::uint64_t address, std::int64_t bytes) {
  Range range{address, address + static_cast<std::uint64_t>(whole_pages(bytes))};
  auto after = std::lower_bound(holes_.begin(), holes_.end(), address,
                                [](const Range& hole, std::uint64_t a) { return hole.begin < a; });
  if (after != holes_.end() && after->begin == range.end) {
    range.end = after->end;
    after = holes_.erase(after);
  }
  if (after != holes_.begin() && std::prev(after)->end == range.begin) {
    --after;
    range.begin = after->begin;
    after = holes_.erase(after);
  }
  if (range.end == top_) {
    top_ = range.begin;
  } else {
    holes_.insert(after, range);
  }
}

}  // namespace memplan
