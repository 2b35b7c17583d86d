// One row for each optimizer: what it is called, what it keeps, and how often its step passes over memory. The program
// of its step is in runtime/torch/step.
#pragma once

#include <string_view>

#include "estimators/setup/setup.h"

namespace memplan {

/// How often an optimizer reads or writes one element of the parameter's size, and its kernels per tensor where it
/// walks them one by one. Counted in torch/optim/*.py of PyTorch 2.11: every foreach call passes over its operands
/// once.
struct Passes {
  double foreach = 0, fused = 0, kernels = 0;
  friend Passes operator+(const Passes& a, const Passes& b) {
    return {a.foreach + b.foreach, a.fused + b.fused, a.kernels + b.kernels};
  }
};

struct OptimizerModel {
  OptimizerKind kind;
  const char* python;       ///< the class; null where there is none
  bool foreach = false;     ///< torch.optim takes its foreach implementation unless told otherwise
  bool decays = false;      ///< weight decay by default
  bool adam = false;        ///< Adam and AdamW, which other frameworks have versions of their own of
  bool one_by_one = false;  ///< always walks the parameters one by one
  /// State as copies of the parameters, in their dtype: always, with momentum, and with AMSGrad. Factored moments do
  /// not count: they are small.
  double states = 0, momentum_states = 0, amsgrad_states = 0;
  double bytes_per_element = 0;  ///< of state in a dtype of its own
  bool roots = false;            ///< foreach takes the square root of all second moments at once
  Passes passes = {}, with_momentum = {}, with_decay = {}, with_amsgrad = {};
};

const OptimizerModel& optimizer_model(OptimizerKind kind);

/// Of the setup's own choices.
Passes passes_of(const OptimizerSetup& setup);
double states_of(const OptimizerSetup& setup);

}  // namespace memplan
