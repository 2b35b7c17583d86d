// The loss of the reference program and the target that the batch carries for it.
#pragma once

#include <optional>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"
#include "estimators/setup/setup.h"

namespace memplan {

struct TargetShape {
  Loss loss = Loss::cross_entropy;
  Dims sizes;
  DType dtype = DType::int64;
  bool in_model = false;  ///< Megatron-LM's model takes the loss of every token itself
};

/// The first floating output is what the loss is taken of. Cross entropy: [N, C] and [N, …, C] take class indices of
/// all but the last dimension, [N, C, H, W] one per pixel. A scalar output is the loss itself (Loss::sum, no target).
TargetShape target_shape(const ValueList& outputs, const TrainingSetup& setup);
/// False where the loss needs none, or an empty one: nothing is allocated for it.
bool has_target(const TargetShape& shape);
Tensor make_target(Run& run, const TargetShape& shape);
Tensor compute_loss(Run& run, const ValueList& outputs, const Tensor& target, const TargetShape& shape);

}  // namespace memplan
