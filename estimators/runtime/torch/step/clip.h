// torch.nn.utils.clip_grad_norm_ (foreach on CUDA).
#pragma once

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {
void clip_grad_norm(Run& run, const TensorList& parameters);
}
