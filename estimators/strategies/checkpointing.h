// Activation checkpointing: which modules run under torch.utils.checkpoint.
#pragma once

#include <string>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Marks the calls of every module whose path matches one of the globs (Tape::checkpoints); inside of a marked module no
/// other one is marked. "blocks" stands for the model's repeated blocks: modules of one class whose paths differ only in
/// a number at the end, outermost ones. "every:N" is every Nth of them in the order of the forward pass, beginning with
/// the Nth (as torchtitan counts); "groups:N" runs N neighbours of one list of modules as one checkpoint (Megatron's
/// recompute_method uniform); so does "a+b" for the modules a and b that follow each other. Failure(usage) for a glob that matches no module.
void checkpoint_modules(Tape& tape, const std::vector<std::string>& globs);

/// Every stretch that could run under one checkpoint: modules that are called once and whose calls stand together, and runs
/// of neighbours in an nn.Sequential.
std::vector<CheckpointRegion> possible_regions(const Tape& tape);

}  // namespace memplan
