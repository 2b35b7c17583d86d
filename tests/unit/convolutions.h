// Convolutions and cards for tests of cuDNN's workspaces.
#pragma once

#include "estimators/runtime/torch/aten/cudnn_workspace.h"

namespace memplan::testing {

/// A card of a compute capability, 90 for 9.0.
inline Device on(int sm) {
  Device d;
  d.sm_major = sm / 10;
  d.sm_minor = sm % 10;
  return d;
}

}  // namespace memplan::testing
