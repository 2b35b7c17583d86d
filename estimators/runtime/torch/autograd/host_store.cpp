#include "estimators/runtime/torch/autograd/host_store.h"

namespace memplan {

void HostStore::save(Run& run, Node& node, const Tensor& t, bool) {
  if (t->on_host) {
    node.saved.push_back(t);
    return;
  }
  // copy_ of a device tensor with gaps goes through a dense one (copy_requires_temporaries of native/cuda/Copy.cu).
  if (!is_contiguous(*t)) Tensor dense = run.empty(t->sizes, t->dtype, Category::temporary);
  node.packed.resize(node.saved.size());
  node.saved.emplace_back();
  node.packed.push_back({shared_from_this(), static_cast<std::int32_t>(copies_.size())});
  copies_.emplace_back(t->sizes, t->dtype);
}

Tensor HostStore::unpack(Run& run, std::int32_t slot) {
  const auto& [sizes, dtype] = copies_[static_cast<std::size_t>(slot)];
  return run.empty(sizes, dtype, Category::activation);
}

}  // namespace memplan
