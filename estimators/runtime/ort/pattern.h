// The memory pattern: where in one block the buffers of a run lie, found from the allocations of the first run
// (onnxruntime/core/framework/mem_pattern_planner.h).
#pragma once

#include <cstdint>
#include <vector>

namespace memplan::ort {

class MemoryPattern {
 public:
  void allocate(std::int32_t buffer, std::int64_t bytes);
  void free(std::int32_t buffer);
  std::int64_t bytes() const { return peak_; }  ///< of the block

 private:
  struct Block {
    std::int64_t offset, bytes;
    std::int32_t buffer;
  };
  std::vector<Block> blocks_;
  std::int64_t peak_ = 0;
};

}  // namespace memplan::ort
