#include "estimators/aten/ops.h"
#include "estimators/aten/registry.h"

namespace memplan {
void register_convolution(Registry&) {}
}  // namespace memplan
