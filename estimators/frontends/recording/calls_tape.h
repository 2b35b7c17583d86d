// From recorded calls to a tape: what a recording tells of setups that did not run.
#pragma once

#include <memory>

#include "estimators/frontends/recording/recording.h"

namespace memplan::recording {

/// The tape of one run's forward pass at a batch. Nothing is put back: names, saved tensors of unknown ops, functions
/// and checkpoints are those that were seen. Failure(usage) for a batch whose sizes the calls do not tell.
Tape tape_of_calls(const Recording& recording, const Run& run, std::int64_t batch);

/// Parameters, buffers and inputs of the module, as values of `tape`.
void add_module(const Recording& recording, std::int64_t batch, Tape& tape);

}  // namespace memplan::recording
