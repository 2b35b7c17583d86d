// PyTorch's autograd engine on paper (torch/csrc/autograd/engine.cpp, input_buffer.cpp,
// functions/accumulate_grad.h): which node runs next, which gradients are summed in place, which are stolen.
#pragma once

#include "estimators/aten/run.h"

namespace memplan {

/// loss.backward(): the caller's ones_like(loss) lives until the call returns.
void backward(Run& run, const Tensor& loss);

/// torch.autograd.backward(roots, grads): the gradients stay with the caller.
void backward(Run& run, const TensorList& roots, const TensorList& grads);

}  // namespace memplan
