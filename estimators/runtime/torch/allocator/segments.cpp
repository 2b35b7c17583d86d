// The state of the allocator as torch.cuda.memory._snapshot() tells it.
#include <algorithm>

#include "estimators/runtime/torch/allocator/caching_allocator.h"

namespace memplan {

std::vector<SegmentView> CachingAllocator::segments() const {
  std::vector<bool> spare(blocks_.size(), false);
  for (const BlockId id : spare_) spare[static_cast<std::size_t>(id)] = true;
  const auto block = [&](BlockId id) -> const Block& { return blocks_[static_cast<std::size_t>(id)]; };
  std::vector<SegmentView> out;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& head = blocks_[i];
    if (spare[i] || !head.mapped) continue;
    if (head.previous != no_block && block(head.previous).mapped) continue;
    SegmentView segment{head.address, 0, head.stream, head.small, head.arena >= 0, {}};
    for (auto id = static_cast<BlockId>(i); id != no_block && block(id).mapped; id = block(id).next) {
      const Block& b = block(id);
      const bool allocated = b.state != State::free;
      segment.blocks.push_back({id, b.address, b.size, allocated ? b.requested : 0, allocated});
      segment.bytes += b.size;
    }
    out.push_back(std::move(segment));
  }
  std::sort(out.begin(), out.end(), [](const SegmentView& a, const SegmentView& b) { return a.address < b.address; });
  return out;
}

}  // namespace memplan
