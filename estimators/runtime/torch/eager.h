// PyTorch's eager mode as a runtime: the reference program (step/), the engine and the caching allocator.
#pragma once

#include "estimators/runtime/runtime.h"

namespace memplan {

/// In the version that the setup's profile describes.
const Runtime& torch_eager();

}  // namespace memplan
