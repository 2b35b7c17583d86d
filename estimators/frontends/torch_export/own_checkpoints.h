// What torch.export leaves of torch.utils.checkpoint in the training IR: the program's own checkpointing.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "estimators/frontends/torch_export/program.h"
#include "estimators/tape/tape.h"

namespace memplan::torch_export {

/// The empty tensor by which checkpoint(use_reentrant=False) saves its arguments (_NoopSaveInputs of PyTorch 2.1 on):
/// what follows on the caller's line is checkpointed.
bool marks_checkpoint(const Node& node);

/// For every node of the graph the application of checkpoint() that it stands in, -1: in none. Numbers go on from
/// `applications`. A stretch begins where it is marked; where it ends is told by the caller's line.
std::vector<std::int32_t> checkpointed_nodes(const Subgraph& graph, std::int32_t& applications);

/// Values that are worked out of parameters, as a program is lowered. A reentrant checkpoint gives no gradients where
/// none of its arguments beside parameters is one.
class Differentiable {
 public:
  explicit Differentiable(const Tape& tape) : tape_(tape) {}
  void follow(const Call& call);
  bool any_of(const std::vector<Arg>& args) const;

 private:
  const Tape& tape_;
  std::set<std::int32_t> found_;
};

/// How far off a reentrant checkpoint is that counts as one without reentrance; `results`: bytes of what it returns.
Fact reentrant_checkpoint(Bytes results);

/// Whether a region without gradients is the forward pass of checkpoint(use_reentrant=True).
bool is_reentrant_checkpoint(const Subgraph& graph);

}  // namespace memplan::torch_export
