#include "estimators/setup/optimizers.h"

#include "estimators/base/error.h"

namespace memplan {

namespace {

const OptimizerModel models[] = {
    {.kind = OptimizerKind::none, .python = nullptr},
    // p.add_(g): 3; with momentum buf.mul_ 2, buf.add_ 3 before; weight decay 3 more.
    {.kind = OptimizerKind::sgd,
     .python = "torch.optim.SGD",
     .foreach = true,
     .momentum_states = 1,
     .passes = {3, 3, 1},
     .with_momentum = {5, 2, 2},
     .with_decay = {3, 0, 0}},
    // m.lerp_ 3, v.mul_ 2, v.addcmul_ 3, sqrt 2, div_ 2, add_ 2, p.addcdiv_ 4; AdamW's p.mul_ 2. Fused: p, g, m, v in,
    // p, m, v out.
    {.kind = OptimizerKind::adam,
     .python = "torch.optim.Adam",
     .foreach = true,
     .adam = true,
     .states = 2,
     .amsgrad_states = 1,
     .roots = true,
     .passes = {18, 7, 7},
     .with_decay = {3, 0, 0},
     .with_amsgrad = {3, 2, 0}},
    {.kind = OptimizerKind::adamw,
     .python = "torch.optim.AdamW",
     .foreach = true,
     .decays = true,
     .adam = true,
     .states = 2,
     .amsgrad_states = 1,
     .roots = true,
     .passes = {20, 7, 8},
     .with_amsgrad = {3, 2, 0}},
    {.kind = OptimizerKind::adagrad,
     .python = "torch.optim.Adagrad",
     .foreach = true,
     .states = 1,
     .roots = true,
     .passes = {13, 5, 4}},
    {.kind = OptimizerKind::rmsprop,
     .python = "torch.optim.RMSprop",
     .foreach = true,
     .states = 1,
     .momentum_states = 1,
     .roots = true,
     .passes = {13, 13, 5},
     .with_momentum = {5, 5, 0}},
    {.kind = OptimizerKind::adafactor, .python = "torch.optim.Adafactor", .passes = {16, 16, 14}},
    // norm 1, ** 2, + 2, means 2, the factors' product 1, mul_ 3, norm 1, div_ 2, mul_ 2, neg 2, add_ 3.
    {.kind = OptimizerKind::adafactor_hf,
     .python = "__import__(\"transformers\").Adafactor",
     .one_by_one = true,
     .passes = {21, 21, 24}},
    {.kind = OptimizerKind::lion,
     .python = "__import__(\"lion_pytorch\").Lion",
     .one_by_one = true,
     .states = 1,
     .passes = {12, 12, 5}},
    // One kernel: p and g in, p out, and two states of one byte (of four) in and out.
    {.kind = OptimizerKind::adamw8bit,
     .python = "__import__(\"bitsandbytes\").optim.AdamW8bit",
     .decays = true,
     .one_by_one = true,
     .bytes_per_element = 2,
     .passes = {4, 4, 1}},
    {.kind = OptimizerKind::muon, .python = "torch.optim.Muon", .passes = {20, 20, 8}},
};

}  // namespace

const OptimizerModel& optimizer_model(OptimizerKind kind) {
  for (const OptimizerModel& m : models)
    if (m.kind == kind) return m;
  fail(ErrorKind::internal, "an optimizer has no row");
}

Passes passes_of(const OptimizerSetup& setup) {
  const OptimizerModel& m = optimizer_model(setup.kind);
  Passes passes = m.passes;
  if (setup.momentum > 0) passes = passes + m.with_momentum;
  if (setup.weight_decay > 0) passes = passes + m.with_decay;
  if (setup.amsgrad) passes = passes + m.with_amsgrad;
  return passes;
}

double states_of(const OptimizerSetup& setup) {
  const OptimizerModel& m = optimizer_model(setup.kind);
  return m.states + (setup.momentum > 0 ? m.momentum_states : 0) + (setup.amsgrad ? m.amsgrad_states : 0);
}

}  // namespace memplan
