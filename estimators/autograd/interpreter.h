// Executes the calls of a tape on paper: the forward pass of the model.
#pragma once

#include "estimators/aten/registry.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// The Python names of a forward pass: one value per tape value, empty once the name is gone.
struct Environment {
  std::vector<Value> values;
  /// Schedule::names of calls and values, looked up in the first pass: later steps run the same calls.
  std::vector<std::int32_t> call_names, value_names;
};

/// Runs every call in order; drops names as Call::last_uses says. Inputs and parameters must be in `env`.
/// Calls without a row widen the estimate: their outputs take the shapes that the file knows, and nothing is assumed
/// to be free (Run::widenings names them).
void run_forward(Run& run, const Tape& tape, Environment& env);

}  // namespace memplan
