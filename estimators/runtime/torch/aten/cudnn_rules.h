// The workspace of a convolution that no table has, by rules that were learnt from cuDNN's answers.
#pragma once

#include <optional>

#include "estimators/runtime/torch/aten/cudnn_workspace.h"

namespace memplan {

/// What the rules say of a convolution.
struct RuledWorkspace {
  Bytes usual;
  Bytes least, most;     ///< over everything that cuDNN chose for convolutions like it
  bool own_card = true;  ///< false: the rules are those of another architecture
};

/// data/cudnn/rules.txt has a decision tree for each compute capability, pass and group of types: which kind of
/// workspace cuDNN's heuristics choose (nothing, copies of the tensors in another layout, partial sums of a split
/// matrix product …). cudnn_rule_sizes.h has the sizes of each kind. Made by tools/cudnn_workspaces/rules.py from
/// cuDNN 9.19. None where cuDNN has no engine for convolutions like it. `near_table`: it is nearly one of
/// data/cudnn/workspaces.txt, so the trees that were learnt from such ones say it.
std::optional<RuledWorkspace> ruled_workspace(const ConvProblem& problem, ConvPass pass, int sm,
                                              bool near_table = false);

}  // namespace memplan
