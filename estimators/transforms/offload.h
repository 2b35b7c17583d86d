// Weights that live in host memory and visit the device while their module runs (accelerate.cpu_offload).
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Every module that has parameters of its own gets them where its forward begins, one tensor after the other, and
/// loses them where it returns; each transfer empties the allocator's cache, as set_module_tensor_to_device does.
/// Buffers stay on the device. For inference, after mark_last_uses. Failure(usage) for weights that are used outside of
/// their module's own forward (nn.MultiheadAttention's out_proj, tied weights): accelerate cannot offload those.
void offload_parameters(Tape& tape);

}  // namespace memplan
