// Activation checkpointing: which modules run under torch.utils.checkpoint.
#pragma once

#include <string>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// Marks the calls of every module whose path matches one of the globs (Tape::checkpoints); inside of a marked module
/// no other one is marked. "blocks" stands for the model's repeated blocks: modules of one class whose paths differ
/// only in a number at the end, outermost ones. "every:N" is every Nth of them in the order of the forward pass,
/// beginning with the Nth (as torchtitan counts); "groups:N" runs N neighbours of one list of modules as one checkpoint
/// (Megatron's recompute_method uniform); so does "a+b" for the modules a and b that follow each other. Stretches nest:
/// "groups:4/blocks" has every block of a group under a checkpoint of its own, too, "groups:16/groups:4/blocks" has
/// three levels, and "(a+b)+(c)+d" is one stretch with two stretches and a module inside. Failure(usage) for a glob
/// that matches no module.
void checkpoint_modules(Tape& tape, const std::vector<std::string>& globs);

/// Every stretch that could run under one checkpoint: modules that are called once and whose calls stand together, and
/// runs of neighbours in an nn.Sequential.
std::vector<CheckpointRegion> possible_regions(const Tape& tape);

/// The repeated blocks that follow each other, by the list of modules that they are in: what groups are made of.
std::vector<std::vector<CheckpointRegion>> lists_of_blocks(const Tape& tape);

/// Some stretch of Tape::checkpoints has another one inside.
bool nests(const Tape& tape);

/// A module that runs inside of a stretch (`path`), or a stretch: what it is made of, in the order in which it runs.
struct CheckpointStretch {
  std::string path;
  std::vector<CheckpointStretch> members;  ///< empty: a module
};

/// Tape::checkpoints as what they are made of.
std::vector<CheckpointStretch> checkpoint_stretches(const Tape& tape);

/// The same in the words of --checkpoint: "h.0+h.1", "(h.0)+(h.1)+h.2".
std::vector<std::string> checkpoint_words(const Tape& tape);

}  // namespace memplan
