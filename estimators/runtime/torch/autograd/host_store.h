// torch.autograd.graph.save_on_cpu(pin_memory=True) on paper (torch/autograd/graph.py of PyTorch 2.11).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

/// Every tensor that an op saves is copied into pinned host memory, parameters too, and the node keeps the copy;
/// tensors that are not contiguous are made so on the device first. When the node runs, each becomes a new contiguous
/// tensor on the device. Nothing is shared: a tensor that two nodes save is copied twice.
class HostStore : public SavedFrame, public SaveHook, public std::enable_shared_from_this<HostStore> {
 public:
  void save(Run& run, Node& node, const Tensor& t, bool output) override;
  Tensor unpack(Run& run, std::int32_t slot) override;

 private:
  std::vector<std::pair<Dims, DType>> copies_;
};

}  // namespace memplan
