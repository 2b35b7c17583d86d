#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {
namespace op {
Tensor softmax(Run& r, const Tensor& x, int, std::optional<DType>) { return r.empty_like(x); }
Tensor dropout(Run&, const Tensor& x, double, bool) { return x; }
}  // namespace op
void register_attention(Registry&) {}
}  // namespace memplan
