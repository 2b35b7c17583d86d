// What torch.export leaves of torch.utils.checkpoint in the training IR: the program's own checkpointing.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/frontends/torch_export/program.h"

namespace memplan::torch_export {

/// The empty tensor by which checkpoint(use_reentrant=False) saves its arguments (_NoopSaveInputs of PyTorch 2.1 on):
/// what follows on the caller's line is checkpointed.
bool marks_checkpoint(const Node& node);

/// For every node of the graph the application of checkpoint() that it stands in, -1: in none. Numbers go on from
/// `applications`. A stretch begins where it is marked; where it ends is told by the caller's line.
std::vector<std::int32_t> checkpointed_nodes(const Subgraph& graph, std::int32_t& applications);

/// How far off a reentrant checkpoint is that counts as one without reentrance; `results`: bytes of what it returns.
Fact reentrant_checkpoint(Bytes results);

/// Whether a region without gradients is the forward pass of checkpoint(use_reentrant=True). It gives no gradients
/// where none of its arguments beside parameters wants one.
bool is_reentrant_checkpoint(const Subgraph& graph);

}  // namespace memplan::torch_export
