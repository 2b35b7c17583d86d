// The joint graph of a compiled module: forward and backward pass in one list of nodes, as AOTAutograd traces it, with
// the ops that Inductor decomposes ATen into. What a node computes is told by its op, its inputs and its constants; two
// nodes that agree in all three are the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/aten/tensor.h"

namespace memplan::compiled {

using NodeId = std::int32_t;

/// What code generation makes of an op.
enum class Kind : std::uint8_t {
  input,      ///< a parameter, buffer, part of the batch, or gradient of an output
  view,       ///< another look at its input's memory
  pointwise,  ///< computed where it is read, unless it has to be in memory
  reduction,  ///< a fused kernel of its own
  random,     ///< pointwise, but never computed twice
  kernel,     ///< a library's kernel or a kernel template: inputs and outputs are in memory
  piece,      ///< one of the results of a node that has several
  effect,     ///< writes into an input
};

/// One op of the joint graph. `recomputable`: on the partitioner's list of what may be computed a second time
/// (torch/_functorch/partitioners.py, get_default_op_list), which also says what it takes for fusible. `intensive`: on
/// its list of what takes long.
struct OpRow {
  std::string_view name;
  Kind kind = Kind::pointwise;
  bool recomputable = true;
  bool intensive = false;
};
/// The row of that name. Failure(internal) where there is none.
const OpRow& op_row(std::string_view name);

struct JointNode {
  const OpRow* op = nullptr;
  std::string constants = {};       ///< arguments that are no tensors, as text
  std::vector<NodeId> inputs = {};  ///< in the order of the arguments
  bool listed = false;              ///< the inputs are one list (cat, index): they do not count as arguments
  Dims sizes = {}, strides = {};
  DType dtype = DType::float32;
  std::int64_t bytes = 0;               ///< of all results
  bool several = false;                 ///< has several results, each a `piece`
  std::int32_t storage = 0;             ///< equal for nodes that share memory while the graph is traced
  std::int64_t scratch = 0;             ///< bytes that a library's kernel takes while it runs
  std::int64_t scratch_in_layout = -1;  ///< of convolutions: in channels_last; -1: the same
  std::int32_t call = -1;               ///< of the tape, where it comes from; -1: none
  bool backward = false;                ///< was traced after the forward pass
};

struct JointGraph {
  std::vector<JointNode> nodes;   ///< inputs come before those that read them
  std::vector<NodeId> primals;    ///< inputs of the forward pass
  std::vector<NodeId> constants;  ///< those of them that live as long as the module: parameters and buffers
  std::vector<NodeId> tangents;   ///< gradients of outputs
  std::vector<NodeId> outputs;    ///< of the forward pass
  std::vector<NodeId> gradients;  ///< parallel to primals; -1: none
  std::vector<NodeId> effects;
  /// Ops of the tape without a row here, by name: how they are computed and derived is a guess, which may be wrong by
  /// the bytes that they read and make.
  std::map<std::string, std::int64_t> guessed;

  const JointNode& at(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  JointNode& at(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }
};

/// Nodes that read each node, every one once and in their order; `outputs`, `gradients` and `effects` are no readers.
std::vector<std::vector<NodeId>> readers_of(const JointGraph& graph);

}  // namespace memplan::compiled
