#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {
namespace op {
Tensor cat(Run& r, const TensorList& parts, int dim) {
  Dims sizes = parts[0]->sizes;
  const int d = wrap_dim(dim, sizes.size());
  for (std::size_t i = 1; i < parts.size(); ++i) sizes[d] += parts[i]->sizes[d];
  return r.empty(sizes, parts[0]->dtype);
}
Tensor embedding(Run& r, const Tensor& w, const Tensor& i) {
  Dims s = i->sizes;
  s.push_back(w->sizes[1]);
  return r.empty(s, w->dtype);
}
}  // namespace op
void register_indexing(Registry&) {}
}  // namespace memplan
