#include "estimators/frontends/onnx/order.h"

#include <fmt/format.h>

#include <queue>
#include <unordered_map>

namespace memplan::onnx_format {

namespace {

std::string describe(const Graph& g, std::size_t node) {
  const GraphNode& n = g.nodes[node];
  if (!n.name.empty()) return fmt::format("node '{}' ({})", n.name, n.op_type);
  for (GraphValueId id : n.outputs)
    if (id >= 0)
      return fmt::format("the {} node that makes '{}'", n.op_type, g.values[static_cast<std::size_t>(id)].name);
  return fmt::format("node {} ({})", node, n.op_type);
}

/// Names that the subgraphs of a node (and theirs) read from outside.
void add_captures(const Model& model, const GraphNode& node, std::vector<std::string>& names) {
  for (const auto& [key, attribute] : node.attributes) {
    const auto* id = std::get_if<GraphId>(&attribute);
    if (!id) continue;
    const Graph& sub = model.graphs[static_cast<std::size_t>(*id)];
    std::unordered_set<GraphValueId> own(sub.inputs.begin(), sub.inputs.end());
    for (const GraphNode& n : sub.nodes) own.insert(n.outputs.begin(), n.outputs.end());
    auto captured = [&](GraphValueId v) {
      if (v >= 0 && !own.count(v) && !sub.initializers.count(v))
        names.push_back(sub.values[static_cast<std::size_t>(v)].name);
    };
    for (const GraphNode& n : sub.nodes) {
      for (GraphValueId v : n.inputs) captured(v);
      add_captures(model, n, names);
    }
    for (GraphValueId v : sub.outputs) captured(v);
  }
}

constexpr std::int32_t nobody = -1, given = -2;

/// By value: the node that makes it.
std::vector<std::int32_t> producers_of(const Graph& g, const std::unordered_set<GraphValueId>& captured) {
  std::vector<std::int32_t> producer(g.values.size(), nobody);
  for (GraphValueId v : g.inputs) producer[static_cast<std::size_t>(v)] = given;
  for (const auto& [v, tensor] : g.initializers) producer[static_cast<std::size_t>(v)] = given;
  for (GraphValueId v : captured) producer[static_cast<std::size_t>(v)] = given;
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    for (GraphValueId v : g.nodes[i].outputs) {
      if (v < 0) continue;
      std::int32_t& p = producer[static_cast<std::size_t>(v)];
      if (p != nobody)
        fail_input(fmt::format("the value '{}' is produced twice, the second time by {}",
                               g.values[static_cast<std::size_t>(v)].name, describe(g, i)),
                   g.nodes[i].name, "ONNX graphs are in single-assignment form; export the model again");
      p = static_cast<std::int32_t>(i);
    }
  return producer;
}

/// PyTorch's exporter may leave out bounds that it worked out (`Clip` of buffers that are infinite). ONNX asks bounds
/// to be numbers, so that is what they are: 0-dim tensors, of which one warning tells.
void add_bounds(Graph& g, std::vector<std::int32_t>& producer, std::vector<std::string>& warnings) {
  std::string first;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const GraphNode& n = g.nodes[i];
    if (n.op_type != "Clip" || !n.domain.empty()) continue;
    for (std::size_t k = 1; k < n.inputs.size(); ++k) {
      const GraphValueId v = n.inputs[k];
      if (v < 0 || producer[static_cast<std::size_t>(v)] != nobody) continue;
      GraphValue& value = g.values[static_cast<std::size_t>(v)];
      if (first.empty()) first = fmt::format("{} reads '{}'", describe(g, i), value.name);
      value.shape = std::vector<Dim>{};
      StoredTensor bound;
      bound.name = value.name;
      bound.dtype = value.dtype.value_or(DType::float32);
      g.initializers.emplace(v, std::move(bound));
      producer[static_cast<std::size_t>(v)] = given;
    }
  }
  if (!first.empty())
    warnings.push_back(first + ", which nothing produces; bounds of a Clip are numbers, so it is taken to be one");
}

struct Readers {
  std::vector<std::vector<std::int32_t>> of;  ///< by node: those that read what it makes
  std::vector<std::int32_t> waiting;          ///< by node: how many values that others make it reads
  bool in_order = true;
};

Readers readers_of(const Graph& g, const std::vector<std::int32_t>& producer, const Model& model) {
  bool any_subgraph = false;
  for (const GraphNode& n : g.nodes)
    for (const auto& [key, a] : n.attributes) any_subgraph = any_subgraph || std::holds_alternative<GraphId>(a);
  std::unordered_map<std::string_view, GraphValueId> by_name;
  if (any_subgraph)
    for (std::size_t v = 0; v < g.values.size(); ++v) by_name.emplace(g.values[v].name, static_cast<GraphValueId>(v));

  Readers out;
  out.of.resize(g.nodes.size());
  out.waiting.assign(g.nodes.size(), 0);
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    auto reads = [&](GraphValueId v) {
      if (v < 0) return;
      const std::int32_t p = producer[static_cast<std::size_t>(v)];
      if (p == nobody)
        fail_input(fmt::format("{} reads '{}', which nothing produces", describe(g, i),
                               g.values[static_cast<std::size_t>(v)].name),
                   g.nodes[i].name, "the file is incomplete; export the model again");
      if (p == given) return;
      out.in_order = out.in_order && p < static_cast<std::int32_t>(i);
      out.of[static_cast<std::size_t>(p)].push_back(static_cast<std::int32_t>(i));
      ++out.waiting[i];
    };
    for (GraphValueId v : g.nodes[i].inputs) reads(v);
    if (!any_subgraph) continue;
    std::vector<std::string> names;
    add_captures(model, g.nodes[i], names);
    for (const std::string& name : names)
      if (auto it = by_name.find(name); it != by_name.end()) reads(it->second);
  }
  return out;
}

/// Of the nodes that wait for nothing, the first one of the file comes next.
std::vector<GraphNode> sorted_nodes(const Graph& g, Readers readers) {
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    if (readers.waiting[i] == 0) ready.push(static_cast<std::int32_t>(i));
  std::vector<GraphNode> sorted;
  sorted.reserve(g.nodes.size());
  while (!ready.empty()) {
    const std::int32_t i = ready.top();
    ready.pop();
    for (std::int32_t user : readers.of[static_cast<std::size_t>(i)])
      if (--readers.waiting[static_cast<std::size_t>(user)] == 0) ready.push(user);
    readers.waiting[static_cast<std::size_t>(i)] = -1;
    sorted.push_back(g.nodes[static_cast<std::size_t>(i)]);
  }
  if (sorted.size() != g.nodes.size()) {
    std::size_t first = 0;
    while (readers.waiting[first] <= 0) ++first;
    fail_input(fmt::format("the graph has a cycle through {}", describe(g, first)), g.nodes[first].name,
               "ONNX graphs have no cycles; export the model again");
  }
  return sorted;
}

}  // namespace

void put_in_order(Graph& g, const std::unordered_set<GraphValueId>& captured, const Model& model,
                  std::vector<std::string>& warnings) {
  std::vector<std::int32_t> producer = producers_of(g, captured);
  add_bounds(g, producer, warnings);
  Readers readers = readers_of(g, producer, model);
  for (GraphValueId v : g.outputs)
    if (producer[static_cast<std::size_t>(v)] == nobody)
      fail_input(fmt::format("the graph's output '{}' is not produced by any node",
                             g.values[static_cast<std::size_t>(v)].name),
                 g.name, "the file is incomplete; export the model again");
  if (readers.in_order) return;
  g.nodes = sorted_nodes(g, std::move(readers));
  warnings.push_back("the nodes of the file are not in topological order; memplan sorted them");
}

}  // namespace memplan::onnx_format
