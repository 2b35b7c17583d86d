// Calls that no row of the op table does on paper: ops that memplan does not know, and custom autograd.Functions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"
#include "estimators/tape/own_function.h"

namespace memplan {

/// Outputs as the file describes them. What autograd keeps is what a recording saw (Call::kept), else inputs and
/// outputs, which is the most that it can be without temporaries. `recorded`: a call that has nothing there kept
/// nothing.
ValueList run_unknown(Run& run, const Call& call, const std::vector<Value>& args,
                      const std::vector<std::pair<std::string, Value>>& kwargs, bool recorded);

/// The recorded forward pass of a function, without gradients, and a node whose backward is the recorded one.
ValueList run_own_function(Run& run, const std::shared_ptr<const OwnFunction>& function,
                           const std::vector<Value>& args);

}  // namespace memplan
