// One function per version of PyTorch: its profile without the table of ops, for the table of versions and for the
// version after it.
#pragma once

#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

TorchProfile torch_2_11();

}  // namespace memplan
