#include "estimators/runtime/torch/compiled/passes.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

namespace memplan::compiled {

namespace {

std::size_t place(NodeId id) { return static_cast<std::size_t>(id); }

/// Every place where a graph names a node.
template <class F>
void each_reference(JointGraph& g, F f) {
  for (JointNode& n : g.nodes)
    for (NodeId& in : n.inputs) f(in);
  for (auto* list : {&g.primals, &g.constants, &g.tangents, &g.outputs, &g.gradients, &g.effects})
    for (NodeId& id : *list)
      if (id >= 0) f(id);
}

/// Keeps the marked nodes; `to`: what stands in for each node.
JointGraph kept(JointGraph g, const std::vector<bool>& keep, const std::vector<NodeId>& to) {
  std::vector<NodeId> fresh(g.nodes.size(), -1);
  std::vector<JointNode> nodes;
  for (NodeId id = 0; place(id) < g.nodes.size(); ++id)
    if (keep[place(id)]) {
      fresh[place(id)] = static_cast<NodeId>(nodes.size());
      nodes.push_back(std::move(g.at(id)));
    }
  g.nodes = std::move(nodes);
  each_reference(g, [&](NodeId& id) {
    NodeId at = id;
    while (to[place(at)] != at) at = to[place(at)];
    id = fresh[place(at)];
  });
  return g;
}

std::vector<NodeId> themselves(const JointGraph& g) {
  std::vector<NodeId> to(g.nodes.size());
  for (NodeId id = 0; place(id) < to.size(); ++id) to[place(id)] = id;
  return to;
}

JointGraph without_dead_nodes(JointGraph g) {
  std::vector<bool> live(g.nodes.size(), false);
  for (const auto* list : {&g.primals, &g.tangents, &g.outputs, &g.gradients, &g.effects})
    for (const NodeId id : *list)
      if (id >= 0) live[place(id)] = true;
  for (std::size_t i = g.nodes.size(); i-- > 0;)
    if (live[i])
      for (const NodeId in : g.nodes[i].inputs) live[place(in)] = true;
  const auto to = themselves(g);
  return kept(std::move(g), live, to);
}

/// Readers that change while nodes are replaced. Results of the graph count as one reader more.
class Uses {
 public:
  explicit Uses(JointGraph& g) : g_(g), readers_(readers_of(g)), to_(themselves(g)), returned_(g.nodes.size(), false) {
    for (const auto* list : {&g.outputs, &g.gradients})
      for (const NodeId id : *list)
        if (id >= 0) returned_[place(id)] = true;
  }
  std::size_t count(NodeId id) const { return readers_[place(id)].size() + (returned_[place(id)] ? 1 : 0); }
  bool returned(NodeId id) const { return returned_[place(id)]; }

  void replace(NodeId id, NodeId by) {
    for (const NodeId r : readers_[place(id)]) {
      for (NodeId& in : g_.at(r).inputs)
        if (in == id) in = by;
      auto& of = readers_[place(by)];
      if (std::find(of.begin(), of.end(), r) == of.end()) of.push_back(r);
    }
    readers_[place(id)].clear();
    if (returned_[place(id)]) returned_[place(by)] = true;
    returned_[place(id)] = false;
    to_[place(id)] = by;
    drop(id);
  }
  /// A node that nobody reads reads nothing any more.
  void drop(NodeId id) {
    for (const NodeId in : g_.at(id).inputs) std::erase(readers_[place(in)], id);
    g_.at(id).inputs.clear();
  }
  void read(NodeId reader, NodeId input) {
    auto& of = readers_[place(input)];
    if (std::find(of.begin(), of.end(), reader) == of.end()) of.push_back(reader);
  }
  void unread(NodeId reader, NodeId input) { std::erase(readers_[place(input)], reader); }
  const std::vector<NodeId>& replacements() const { return to_; }

 private:
  JointGraph& g_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> to_;
  std::vector<bool> returned_;
};

bool same_layout(const JointNode& a, const JointNode& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
}

/// remove_noop_ops: copies and views that change nothing. The noop_registry of post_grad.py.
void remove_noops(JointGraph& g, Uses& uses) {
  static const std::set<std::string_view> candidates{
      "slice", "clone", "view", "convert_element_type", "slice_scatter", "constant_pad_nd", "repeat", "cat"};
  std::set<std::int32_t> inputs, outputs;
  for (NodeId id = 0; place(id) < g.nodes.size(); ++id)
    if (g.at(id).op->kind == Kind::input) inputs.insert(g.at(id).storage);
  for (const auto* list : {&g.outputs, &g.gradients})
    for (const NodeId id : *list)
      if (id >= 0) outputs.insert(g.at(id).storage);
  for (NodeId id = 0; place(id) < g.nodes.size(); ++id) {
    const JointNode& n = g.at(id);
    if (n.inputs.empty() || !candidates.count(n.op->name)) continue;
    const NodeId from = n.op->name == "slice_scatter" && n.inputs.size() > 1 ? n.inputs[1] : n.inputs[0];
    const JointNode& source = g.at(from);
    if (n.op->name == "cat" && n.inputs.size() > 1) continue;
    const bool view = n.storage == source.storage;
    if (!view && outputs.count(n.storage) && (inputs.count(source.storage) || outputs.count(source.storage))) continue;
    if (view && uses.returned(id) && (source.op->kind == Kind::input || uses.returned(from))) continue;
    if (same_layout(n, source)) uses.replace(id, from);
  }
}

/// early_patterns: views of views and permutations of permutations that lead back, from the last node to the first.
void remove_pairs(JointGraph& g, Uses& uses) {
  for (NodeId id = static_cast<NodeId>(g.nodes.size()) - 1; id >= 0; --id) {
    const JointNode& n = g.at(id);
    const bool view = n.op->name == "view", permute = n.op->name == "permute";
    if ((!view && !permute) || n.inputs.empty() || uses.count(id) == 0) continue;
    const NodeId inner = n.inputs[0];
    if (view && n.sizes == g.at(inner).sizes) {
      uses.replace(id, inner);
      continue;
    }
    const JointNode& m = g.at(inner);
    if (m.op != n.op || m.inputs.empty() || uses.count(inner) != 1) continue;
    const JointNode& source = g.at(m.inputs[0]);
    if (!(n.sizes == source.sizes) || (permute && !(n.strides == source.strides))) continue;
    uses.replace(id, m.inputs[0]);
    uses.drop(inner);
  }
}

/// pointless_convert: of two conversions between floating types the first goes.
void shorten_conversions(JointGraph& g, Uses& uses) {
  const auto usual = [](DType d) {
    return d == DType::float16 || d == DType::bfloat16 || d == DType::float32 || d == DType::float64;
  };
  for (NodeId id = static_cast<NodeId>(g.nodes.size()) - 1; id >= 0; --id) {
    JointNode& n = g.at(id);
    if (n.op->name != "convert_element_type" || n.inputs.empty() || uses.count(id) == 0) continue;
    const NodeId inner = n.inputs[0];
    const JointNode& m = g.at(inner);
    if (m.op != n.op || m.inputs.empty() || uses.count(inner) != 1 || !usual(m.dtype) || !usual(n.dtype)) continue;
    const NodeId source = m.inputs[0];
    uses.unread(id, inner);
    n.inputs[0] = source;
    uses.read(id, source);
    uses.drop(inner);
  }
}

/// fx_graph_cse: equal nodes are one, except random numbers and what shares memory with a result.
JointGraph without_repetitions(JointGraph g) {
  std::set<std::int32_t> returned;
  for (const auto* list : {&g.outputs, &g.gradients})
    for (const NodeId id : *list)
      if (id >= 0) returned.insert(g.at(id).storage);
  std::vector<NodeId> to = themselves(g);
  std::vector<bool> keep(g.nodes.size(), true);
  std::unordered_map<std::string, NodeId> known;
  for (NodeId id = 0; place(id) < g.nodes.size(); ++id) {
    JointNode& n = g.at(id);
    for (NodeId& in : n.inputs) in = to[place(in)];
    if (n.op->kind == Kind::input || n.op->kind == Kind::random || n.op->kind == Kind::effect ||
        returned.count(n.storage))
      continue;
    std::string key(n.op->name);
    key += '|' + n.constants;
    for (const NodeId in : n.inputs) key += '|' + std::to_string(in);
    const auto [found, fresh] = known.emplace(std::move(key), id);
    if (fresh) continue;
    to[place(id)] = found->second;
    keep[place(id)] = false;
  }
  return kept(std::move(g), keep, to);
}

}  // namespace

JointGraph simplify(JointGraph graph) {
  graph = without_dead_nodes(std::move(graph));
  Uses uses(graph);
  remove_noops(graph, uses);
  remove_pairs(graph, uses);
  shorten_conversions(graph, uses);
  const auto to = uses.replacements();
  graph = kept(std::move(graph), std::vector<bool>(to.size(), true), to);
  return without_dead_nodes(without_repetitions(without_dead_nodes(std::move(graph))));
}

}  // namespace memplan::compiled
