// Traces a joint graph: ops are emitted as nodes, with sizes and strides from the eager rows (aten/ops.h) run on paper,
// and what wants a gradient leaves a derivative, which emits the backward pass in the order of PyTorch's engine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/compiled/graph.h"

namespace memplan::compiled {

/// A value while it is traced.
struct Var {
  NodeId node = -1;
  Tensor t;                      ///< sizes, strides and dtype
  std::int32_t derivative = -1;  ///< index of what it is a result of; -1: of nothing that wants a gradient
  std::int32_t result = 0;       ///< which of its results
  std::int32_t leaf = -1;        ///< index into JointGraph::primals where the primal wants a gradient

  explicit operator bool() const { return node >= 0; }
  bool wants() const { return derivative >= 0 || leaf >= 0; }
};
using Vars = std::vector<Var>;

class Tracer;
/// From the gradients of the results (some may be empty) to those of the inputs (the same).
using Derivative = std::function<Vars(Tracer&, const Vars& gradients)>;

class Tracer {
 public:
  /// `run`: a run whose events nobody reads, without gradients.
  explicit Tracer(Run& run) : run(run) {}

  Var primal(const Tensor& like, bool wants_gradient, bool constant);
  Var emit(std::string_view op, const Vars& inputs, std::string constants, const Tensor& result, bool listed = false);
  /// A node with several results; empty ones are none. `bytes_of_all`: results that nobody can read count as well.
  Vars emit_several(std::string_view op, const Vars& inputs, std::string constants, const TensorList& results,
                    bool listed = false);
  /// What the kernel behind some of its results takes while it runs.
  void takes(const Vars& results, std::int64_t scratch, std::int64_t in_layout = -1);
  /// The results of a differentiable op, tied to its inputs.
  Vars record(const Vars& inputs, Vars results, Derivative derivative);
  Var record(const Vars& inputs, const Var& result, Derivative derivative);
  /// torch.autograd.grad of the outputs: emits tangents and the backward pass, and sets outputs and gradients.
  void backward(const Vars& outputs);

  Run& run;
  JointGraph graph;
  std::int32_t call = -1;  ///< of the tape, for nodes that are emitted now
  /// The backward pass is traced under the autocast of the call that compiles it, so its ops are cast as well.
  bool autocast = false;
  DType autocast_dtype = DType::bfloat16;
  bool in_backward() const { return in_backward_; }
  std::int32_t seeds = -1;  ///< the node that all random numbers of the graph come from
  std::int32_t random = 0;  ///< how many have asked for them
  /// What convolutions add to the notes of `run`: as their tensors lie, and in channels_last.
  Notes notes_as_laid, notes_in_layout;

 private:
  struct Recorded {
    std::vector<Var> inputs;
    std::int32_t results = 1;
    std::int32_t call = -1;
    Derivative derivative;
  };
  NodeId add(JointNode node, const Tensor& t);
  void accumulate(Var& into, const Var& gradient);
  Var fitted(const Var& gradient, const Var& input);
  std::vector<Recorded> recorded_;
  bool in_backward_ = false;
};

}  // namespace memplan::compiled
