#include "estimators/runtime/ort/pattern.h"

#include <algorithm>
#include <limits>

#include "estimators/base/bytes.h"

namespace memplan::ort {

/// Into the gap that it fills best, else behind the last block.
void MemoryPattern::allocate(std::int32_t buffer, std::int64_t bytes) {
  if (bytes == 0) return;
  bytes = checked_add(bytes, 255) / 256 * 256;
  std::int64_t end = 0, waste = std::numeric_limits<std::int64_t>::max();
  std::int64_t at = blocks_.empty() ? 0 : blocks_.back().offset + blocks_.back().bytes;
  auto place = blocks_.end();
  for (auto b = blocks_.begin(); b != blocks_.end(); ++b) {
    const std::int64_t gap = b->offset - end;
    if (gap >= bytes && gap - bytes < waste) {
      waste = gap - bytes;
      at = end;
      place = b;
    }
    end = b->offset + b->bytes;
  }
  peak_ = std::max(peak_, checked_add(at, bytes));
  blocks_.insert(place, {at, bytes, buffer});
}

void MemoryPattern::free(std::int32_t buffer) {
  const auto it = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.buffer == buffer; });
  if (it != blocks_.end()) blocks_.erase(it);
}

}  // namespace memplan::ort
