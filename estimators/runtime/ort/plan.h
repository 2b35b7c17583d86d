// Which value has a buffer of its own and which takes over another one's
// (onnxruntime/core/framework/allocation_planner.cc, single stream).
#pragma once

#include <vector>

#include "estimators/runtime/ort/placement.h"
#include "estimators/runtime/ort/shapes.h"

namespace memplan::ort {

enum class Own : std::uint8_t {
  nothing,  ///< not on the device, or it shares `root`
  weight,   ///< stays for the session
  input,    ///< copied to the device when a run begins, for as long as it lasts
  output,   ///< given to the caller at the end
  planned,  ///< allocated when its node runs and part of the memory pattern
};

struct BufferPlan {
  std::vector<Own> own;            ///< by value
  std::vector<GraphValueId> root;  ///< by value: whose buffer it uses, itself where it has one
  std::vector<std::vector<GraphValueId>>
      released;  ///< by node: planned buffers whose last reader it is; what nobody reads stays to the end
};

/// `placed` has its nodes in the order in which they run. `reuse`: enable_mem_reuse.
BufferPlan plan_buffers(const Placed& placed, const std::vector<KnownShape>& shapes, const std::vector<DType>& types,
                        bool reuse);

}  // namespace memplan::ort
