// What torch.optim's optimizers allocate (torch/optim/*.py of PyTorch 2.11): state in the first step, temporaries in
// every step, for the foreach, fused and one-tensor-at-a-time implementations.
#pragma once

#include <memory>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/setup/setup.h"

namespace memplan {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// optimizer.step(): every parameter with a gradient is updated.
  virtual void step(Run& run) = 0;
};

/// Failure(usage) where the version of PyTorch has no such optimizer or no such implementation of it.
void check_optimizer(const TorchProfile& profile, const OptimizerSetup& setup);

/// The optimizer of the setup over `parameters` (registration order, frozen ones left out). Its constructor may
/// already allocate (Adagrad). Null for OptimizerKind::none. Failure(usage) where PyTorch has no such combination.
std::unique_ptr<Optimizer> make_optimizer(Run& run, const OptimizerSetup& setup, const TensorList& parameters);

/// DeepSpeed's FusedAdam (deepspeed/ops/adam/fused_adam.py): both moments in the first step, no temporaries, the number
/// of steps in Python.
std::unique_ptr<Optimizer> make_deepspeed_adam(Run& run, const TensorList& parameters);

}  // namespace memplan
