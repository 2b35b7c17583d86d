// Activation checkpointing: which modules run under torch.utils.checkpoint.
#pragma once

#include <string>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Marks the calls of every module whose path matches one of the globs (Tape::checkpoints); inside of a marked module no
/// other one is marked. "blocks" stands for the model's repeated blocks: modules of one class whose paths differ only in
/// a number at the end, outermost ones. Failure(usage) for a glob that matches no module.
void checkpoint_modules(Tape& tape, const std::vector<std::string>& globs);

}  // namespace memplan
