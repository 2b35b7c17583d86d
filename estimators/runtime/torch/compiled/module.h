// A compiled module in a run: its forward pass in place of the tape's calls, and one node of autograd for all of it.
#pragma once

#include <memory>

#include "estimators/runtime/torch/compiled/joint.h"
#include "estimators/runtime/torch/compiled/plan.h"

namespace memplan::compiled {

class CompiledModule {
 public:
  /// Traces and cuts under an activation_memory_budget. `env` has parameters, buffers and inputs. Notes what is a
  /// guess, and how far off it may be.
  CompiledModule(Run& run, const Tape& tape, const Environment& env, double budget);
  ~CompiledModule();
  /// One call: outputs of the tape are put into `env`.
  void forward(Run& run, const Tape& tape, Environment& env);

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace memplan::compiled
