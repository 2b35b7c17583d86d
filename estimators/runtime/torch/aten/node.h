// A node of the autograd graph: what a forward op left behind for the backward pass.
#pragma once

#include <functional>
#include <memory>

#include "estimators/runtime/torch/aten/tensor.h"

namespace memplan {

struct Edge {
  NodeRef node;
  std::int32_t input_nr = 0;
};

/// Shape, dtype and place of a forward input: the engine reduces and casts the gradient to it.
struct InputMeta {
  Dims sizes;
  DType dtype = DType::float32;
  bool on_host = false;
};

/// Computes the gradients of the inputs. `grads` are the gradients of the outputs (some may be undefined) and stay
/// alive until the engine has validated the result, so a backward that hands one on shares it.
using Backward = std::function<TensorList(Run&, Node&, TensorList& grads)>;

/// Who keeps the saved tensors of a stretch of the forward pass in the nodes' stead (saved tensor hooks).
struct SavedFrame {
  virtual ~SavedFrame() = default;
  /// The tensor behind a placeholder; called once per placeholder, when its node runs.
  virtual Tensor unpack(Run&, std::int32_t slot) = 0;
};

struct PackedSave {
  std::shared_ptr<SavedFrame> frame;  ///< null: the tensor itself is in Node::saved
  std::int32_t slot = 0;
};

struct Node : Pooled<Node> {
  Run* run = nullptr;
  std::int32_t refs = 0;
  std::uint64_t sequence = 0;  ///< AccumulateGrad: the largest value, so that it runs as soon as it is ready
  std::int32_t name = -1;      ///< index into Schedule::names: "aten::mul"
  std::int32_t scope = -1;
  std::int32_t call = -1;
  std::int32_t outputs = 1;  ///< forward outputs = gradients that the backward receives
  std::vector<Edge> next;    ///< one per differentiable input; empty edge where no gradient is wanted
  std::vector<InputMeta> inputs;
  TensorList saved;                ///< saved tensors, released after the node has run
  std::vector<PackedSave> packed;  ///< parallel to `saved` where hooks took some of them, else empty
  Backward backward;
  bool unpacks_late = false;  ///< `backward` calls unpack_saved itself, behind allocations of its own
  /// tensor.register_hook on outputs of the forward op: run before the node itself.
  std::vector<std::function<void(Run&)>> pre_hooks;
  TensorBody* leaf = nullptr;  ///< of AccumulateGrad: the parameter (which owns this node)
  std::int32_t pending = 0;    ///< engine: gradients still to come
  std::uint32_t visited = 0;   ///< engine: mark of the last graph search

  bool wants(int i) const { return i < static_cast<int>(next.size()) && next[i].node; }
};

/// Saved tensors that hooks took, back in their places.
void unpack_saved(Run& run, Node& node);

inline NodeRef::NodeRef(Node* n) : n_(n) {
  if (n_) ++n_->refs;
}

}  // namespace memplan
