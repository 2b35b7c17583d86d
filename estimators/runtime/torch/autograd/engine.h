// PyTorch's autograd engine on paper (torch/csrc/autograd/engine.cpp, input_buffer.cpp,
// functions/accumulate_grad.h): which node runs next, which gradients are summed in place, which are stolen.
#pragma once

#include <functional>
#include <set>
#include <unordered_map>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

/// loss.backward(): the caller's ones_like(loss) lives until the call returns.
void backward(Run& run, const Tensor& loss);

/// torch.autograd.backward(roots, grads): the gradients stay with the caller.
void backward(Run& run, const TensorList& roots, const TensorList& grads);

/// torch.autograd.grad(roots, targets): only nodes that lead to a target run, and of their gradients only those that do
/// are computed.
struct GradientRequest {
  std::vector<Edge> roots;
  TensorList grads;            ///< of the roots; the caller's own references count
  std::vector<Node*> targets;  ///< accumulators of leaves
  bool keep_graph = false;     ///< retain_graph: saved tensors stay
  /// The nodes between the roots and the targets, both with them, where the caller knows them; else the graph is
  /// searched.
  const std::set<Node*>* between = nullptr;
  /// Node.register_prehook: what arrives at a node, before it runs.
  std::unordered_map<Node*, std::function<void(const TensorList&)>> hooks;
};
/// Gradients of the targets in their order; null where none arrived. Nothing is stored in the leaves.
TensorList gradients(Run& run, const GradientRequest& request);

}  // namespace memplan
