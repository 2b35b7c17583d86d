// The loss of the reference program and the target that the batch carries for it.
#pragma once

#include <optional>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

struct TargetShape {
  Loss loss = Loss::cross_entropy;
  Dims sizes;
  DType dtype = DType::int64;
  std::size_t output = 0;  ///< which of the floating outputs the loss is taken of
  bool in_model = false;   ///< Megatron-LM's model takes the loss of every token itself
  bool divided = false;    ///< loss_parallel(): the output is the rank's part of the classes
  /// The program has no name for the model's output, which goes with the loss: `loss = compute_loss(model, inputs)`.
  bool drops_output = false;
};

/// What the setup asks for; where it leaves the choice, a class whose library states its loss decides.
Loss loss_of(const Tape& tape, const TrainingSetup& setup);

/// The first floating output is what the loss is taken of. Cross entropy: [N, C] and [N, …, C] take class indices of
/// all but the last dimension, [N, C, H, W] one per pixel. A causal language model's is that of
/// transformers/loss/loss_utils.py (ForCausalLMLoss, fixed_cross_entropy with num_items_in_batch). A scalar output is
/// the loss itself (Loss::sum, no target), as is one after it that trains all that the first output trains: the second
/// of `return logits, loss`, but not the commitment loss beside what a decoder made.
TargetShape target_shape(const ValueList& outputs, const Tape& tape, const TrainingSetup& setup);
/// False where the loss needs none, or an empty one: nothing is allocated for it.
bool has_target(const TargetShape& shape);
Tensor make_target(Run& run, const TargetShape& shape);
/// `tokens`: how many there are in all micro-batches of a step, a number on the device that some losses divide by; made
/// where it is not there yet.
Tensor compute_loss(Run& run, const ValueList& outputs, const Tensor& target, const TargetShape& shape, Tensor& tokens);

}  // namespace memplan
