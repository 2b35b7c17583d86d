// Executes the calls of a tape on paper: the forward pass of the model.
#pragma once

#include <set>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Looks on while calls run: what they were given and what they returned, also while a checkpointed stretch runs again.
struct CallObserver {
  virtual ~CallObserver() = default;
  /// `args` and `kwargs` as the tape has them, before autocast; `call` is the index in the tape.
  virtual void before(Run& run, std::size_t call, const std::vector<Value>& args,
                      const std::vector<std::pair<std::string, Value>>& kwargs) = 0;
  virtual void after(Run& run, std::size_t call, const ValueList& results) = 0;
};

struct Environment;

/// What a wrapper of modules does before and after the calls of the tape (forward hooks of FSDP).
struct CallHooks {
  virtual ~CallHooks() = default;
  /// Of the modules that begin with a call: those whose last call is in [from, below). A checkpointed module's own
  /// hooks stand around its checkpoint, those of the modules in it stand inside of it.
  struct Lasting {
    std::int32_t from = -1, below = INT32_MAX;
  };
  virtual void before(Run&, Environment&, std::int32_t call, Lasting) = 0;
  virtual void after(Run&, Environment&, std::int32_t call) = 0;
  /// The hooks of modules in a checkpointed stretch while it runs again; none for wrappers that do nothing then.
  virtual CallHooks* again() { return nullptr; }
  /// The second run ended inside of modules: their hooks afterwards do not run.
  virtual void stopped() {}
};

/// The Python names of a forward pass: one value per tape value, empty once the name is gone.
struct Environment {
  std::vector<Value> values;
  /// Schedule::names of calls and values, looked up in the first pass: later steps run the same calls.
  std::vector<std::int32_t> call_names, value_names;
  CallObserver* observer = nullptr;
  /// Ops whose outputs checkpointed stretches keep (kept_ops() of TrainingSetup::checkpoint_save).
  std::set<std::string, std::less<>> kept_ops;
  CallHooks* hooks = nullptr;
  /// No name goes before the end, and nothing is checkpointed: for those who look at the values afterwards.
  bool keeps_values = false;
};

/// Runs every call in order; drops names as Call::last_uses says. Inputs and parameters must be in `env`.
/// Calls without a row widen the estimate: their outputs take the shapes that the file knows, and nothing is assumed
/// to be free (the notes of the schedule name them).
void run_forward(Run& run, const Tape& tape, Environment& env);

}  // namespace memplan
