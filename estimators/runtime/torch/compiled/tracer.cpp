#include "estimators/runtime/torch/compiled/tracer.h"

#include <unordered_map>
#include <utility>

#include "estimators/runtime/torch/compiled/prims.h"

namespace memplan::compiled {

NodeId Tracer::add(JointNode node, const Tensor& t) {
  if (t) {
    node.sizes = t->sizes;
    node.strides = t->strides;
    node.dtype = t->dtype;
    node.bytes = t->bytes().count;
  }
  node.call = call;
  node.backward = in_backward_;
  graph.nodes.push_back(std::move(node));
  const auto id = static_cast<NodeId>(graph.nodes.size() - 1);
  JointNode& n = graph.at(id);
  n.storage = id;
  // Views lie where their input does.
  if (n.op->kind == Kind::view && !n.inputs.empty()) n.storage = graph.at(n.inputs[0]).storage;
  if (n.op->kind == Kind::piece && graph.at(n.inputs[0]).op->kind == Kind::view)
    n.storage = graph.at(n.inputs[0]).storage;
  return id;
}

Var Tracer::primal(const Tensor& like, bool wants_gradient, bool constant) {
  const Tensor t = run.empty_strided(like->sizes, like->strides, like->dtype);
  const NodeId id = add({.op = &op_row("input")}, t);
  graph.primals.push_back(id);
  graph.gradients.push_back(-1);
  if (constant) graph.constants.push_back(id);
  Var v{.node = id, .t = t};
  if (wants_gradient) v.leaf = static_cast<std::int32_t>(graph.primals.size() - 1);
  return v;
}

Var Tracer::emit(std::string_view op, const Vars& inputs, std::string constants, const Tensor& result, bool listed) {
  JointNode n{.op = &op_row(op), .constants = std::move(constants), .listed = listed};
  for (const Var& v : inputs)
    if (v) n.inputs.push_back(v.node);
  return {.node = add(std::move(n), result), .t = result};
}

Vars Tracer::emit_several(std::string_view op, const Vars& inputs, std::string constants, const TensorList& results,
                          bool listed) {
  const Var all = emit(op, inputs, std::move(constants), {}, listed);
  graph.at(all.node).several = true;
  for (const Tensor& t : results)
    if (t) graph.at(all.node).bytes += t->bytes().count;
  Vars pieces;
  for (std::size_t i = 0; i < results.size(); ++i)
    pieces.push_back(results[i] ? emit("getitem", {all}, std::to_string(i), results[i]) : Var{});
  return pieces;
}

void Tracer::takes(const Vars& results, std::int64_t scratch, std::int64_t in_layout) {
  for (const Var& v : results)
    if (v) {
      JointNode& n = graph.at(v.node);
      JointNode& kernel = n.op->kind == Kind::piece ? graph.at(n.inputs[0]) : n;
      kernel.scratch = scratch;
      kernel.scratch_in_layout = in_layout;
      return;
    }
}

Vars Tracer::record(const Vars& inputs, Vars results, Derivative derivative) {
  bool any = false;
  for (const Var& v : inputs) any = any || (v && v.wants());
  if (!any || in_backward_) return results;
  recorded_.push_back({inputs, static_cast<std::int32_t>(results.size()), call, std::move(derivative)});
  for (std::size_t i = 0; i < results.size(); ++i) {
    Var& v = results[i];
    if (!v) continue;
    v.leaf = -1;
    v.derivative = -1;
    if (!is_floating(v.t->dtype)) continue;
    v.derivative = static_cast<std::int32_t>(recorded_.size() - 1);
    v.result = static_cast<std::int32_t>(i);
  }
  return results;
}

Var Tracer::record(const Vars& inputs, const Var& result, Derivative derivative) {
  return record(inputs, Vars{result}, std::move(derivative))[0];
}

/// InputBuffer::accumulate
void Tracer::accumulate(Var& into, const Var& gradient) {
  into = into ? prim::binary(*this, "add", into, gradient) : gradient;
}

/// validate_outputs of the engine: a gradient gets the shape and the dtype of its input.
Var Tracer::fitted(const Var& gradient, const Var& input) {
  Var g = gradient;
  if (!(g.t->sizes == input.t->sizes)) g = prim::sum_to(*this, g, input.t->sizes);
  return prim::convert(*this, g, input.t->dtype);
}

void Tracer::backward(const Vars& outputs) {
  // Only what is needed for the outputs has a gradient; what was recorded last comes first.
  std::vector<Vars> pending(recorded_.size());
  for (std::size_t i = 0; i < pending.size(); ++i) pending[i].resize(static_cast<std::size_t>(recorded_[i].results));
  Vars leaves(graph.primals.size());
  const auto deliver = [&](const Var& to, const Var& gradient) {
    if (to.derivative >= 0)
      accumulate(pending[static_cast<std::size_t>(to.derivative)][static_cast<std::size_t>(to.result)], gradient);
    else if (to.leaf >= 0)
      accumulate(leaves[static_cast<std::size_t>(to.leaf)], gradient);
  };
  in_backward_ = true;
  call = -1;
  std::vector<std::pair<Var, Var>> roots;
  for (const Var& v : outputs) {
    graph.outputs.push_back(v.node);
    if (!v.wants()) continue;
    const Tensor t = run.empty_strided(v.t->sizes, v.t->strides, v.t->dtype);
    const NodeId id = add({.op = &op_row("input")}, t);
    graph.tangents.push_back(id);
    roots.emplace_back(v, Var{.node = id, .t = t});
  }
  for (const auto& [v, tangent] : roots) deliver(v, tangent);
  for (std::size_t i = recorded_.size(); i-- > 0;) {
    bool any = false;
    for (const Var& g : pending[i]) any = any || g;
    if (!any) continue;
    call = recorded_[i].call;
    const Vars inner = recorded_[i].derivative(*this, pending[i]);
    for (std::size_t k = 0; k < recorded_[i].inputs.size() && k < inner.size(); ++k) {
      const Var& input = recorded_[i].inputs[k];
      if (input && inner[k] && input.wants()) deliver(input, fitted(inner[k], input));
    }
    pending[i].clear();
    recorded_[i] = {};
  }
  for (std::size_t k = 0; k < leaves.size(); ++k)
    if (leaves[k]) graph.gradients[k] = leaves[k].node;
}

}  // namespace memplan::compiled
