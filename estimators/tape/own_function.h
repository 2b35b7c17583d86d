// What a recording saw of autograd besides the calls: custom functions with their backward passes, and what ops kept.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Calls of a stretch with values of their own.
struct SubTape {
  Tape tape;                     ///< values, calls and inputs; nothing else
  std::vector<ValueId> results;  ///< of `tape`; one that is not valid: nothing
};

/// One application of an autograd.Function, as it ran: the forward pass without gradients, what the function saved, and
/// the backward pass.
struct OwnFunction {
  std::string name;
  SubTape forward;             ///< inputs: the arguments of the call; results: its outputs
  std::vector<ValueId> saved;  ///< of `forward`
  SubTape backward;            ///< inputs: the gradients of the outputs, then what was saved; results: one per argument
  /// The backward pass is not known: it takes as much as the forward pass did. All arguments are saved.
  bool again = false;
};

/// What autograd kept of one call.
struct Kept {
  std::vector<std::int32_t> arguments, results;                          ///< counted among the call's tensors
  std::vector<std::pair<DType, std::vector<std::int64_t>>> made_inside;  ///< and what the op made for it alone
};

}  // namespace memplan
