#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {
namespace op {
Tensor log_softmax(Run& r, const Tensor& x, int, std::optional<DType>) { return r.empty_like(x); }
}  // namespace op
void register_losses(Registry&) {}
}  // namespace memplan
