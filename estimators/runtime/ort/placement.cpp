#include "estimators/runtime/ort/placement.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "estimators/runtime/ort/kernels.h"

namespace memplan::ort {

namespace {

using NodeIndex = std::int32_t;

constexpr std::int64_t small_initializer = 100;  // kSmallInitializerThreshold, elements

struct Links {
  std::vector<NodeIndex> producer;                ///< by value; -1: none
  std::vector<std::vector<NodeIndex>> consumers;  ///< by value, ascending
};

Links links_of(const Graph& graph) {
  Links out;
  out.producer.assign(graph.values.size(), -1);
  out.consumers.resize(graph.values.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const GraphValueId id : graph.nodes[n].outputs)
      if (id >= 0) out.producer[static_cast<std::size_t>(id)] = static_cast<NodeIndex>(n);
    for (const GraphValueId id : graph.nodes[n].inputs) {
      if (id < 0) continue;
      auto& of = out.consumers[static_cast<std::size_t>(id)];
      if (of.empty() || of.back() != static_cast<NodeIndex>(n)) of.push_back(static_cast<NodeIndex>(n));
    }
  }
  return out;
}

bool is_small(const Graph& graph, GraphValueId id) {
  const auto it = graph.initializers.find(id);
  if (it == graph.initializers.end()) return false;
  std::int64_t count = 1;
  for (const std::int64_t n : it->second.sizes) count = std::min<std::int64_t>(count, small_initializer + 1) * n;
  return count <= small_initializer;
}

/// Nodes that depend on host values alone, found from those that give some (Shape, Size).
std::vector<bool> cpu_nodes(const Graph& graph, const Links& links) {
  std::vector<bool> on_cpu(graph.nodes.size(), false), visited(graph.nodes.size(), false);
  std::unordered_set<GraphValueId> host;
  std::vector<NodeIndex> place_of(graph.nodes.size());
  const std::vector<NodeIndex> order = run_order(graph);
  for (std::size_t i = 0; i < order.size(); ++i)
    place_of[static_cast<std::size_t>(order[i])] = static_cast<NodeIndex>(i);
  const auto later = [&](NodeIndex a, NodeIndex b) {
    return place_of[static_cast<std::size_t>(a)] > place_of[static_cast<std::size_t>(b)];
  };
  std::priority_queue<NodeIndex, std::vector<NodeIndex>, decltype(later)> candidates(later);
  const auto give = [&](const GraphNode& node) {
    for (const GraphValueId id : node.outputs) {
      if (id < 0) continue;
      host.insert(id);
      for (const NodeIndex c : links.consumers[static_cast<std::size_t>(id)]) candidates.push(c);
    }
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Kernel* kernel = kernel_of(graph.nodes[n]);
    if (!kernel || !takes_types(graph, graph.nodes[n])) on_cpu[n] = true;
    if (kernel && kernel->host_output) give(graph.nodes[n]);
  }
  while (!candidates.empty()) {
    const auto n = static_cast<std::size_t>(candidates.top());
    candidates.pop();
    if (visited[n] || on_cpu[n]) continue;
    visited[n] = true;
    const GraphNode& node = graph.nodes[n];
    const Kernel& kernel = *kernel_of(node);
    bool host_only = true;
    for (std::size_t i = 0; i < node.inputs.size() && host_only; ++i) {
      const GraphValueId id = node.inputs[i];
      if (is_small(graph, id) || std::find(graph.inputs.begin(), graph.inputs.end(), id) != graph.inputs.end())
        continue;
      host_only = host.count(id) > 0 && !reads_on_host(kernel, i);
    }
    if (!host_only) continue;
    on_cpu[n] = true;
    give(node);
  }
  return on_cpu;
}

/// Who reads a value: kernels on the device, and nodes or kernels that want it in host memory.
struct Readers {
  bool device = false, host = false;
};

Readers readers_of(const Graph& graph, const Links& links, const std::vector<bool>& on_cpu, GraphValueId id) {
  Readers out;
  for (const NodeIndex c : links.consumers[static_cast<std::size_t>(id)]) {
    const GraphNode& node = graph.nodes[static_cast<std::size_t>(c)];
    const Kernel* kernel = on_cpu[static_cast<std::size_t>(c)] ? nullptr : kernel_of(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == id) (kernel && !reads_on_host(*kernel, i) ? out.device : out.host) = true;
  }
  return out;
}

/// Lets the readers of one side read a copy.
void copy_for(Placed& p, GraphValueId id, bool to_device) {
  GraphValue copy = p.graph.values[static_cast<std::size_t>(id)];
  copy.name += to_device ? "_CUDAExecutionProvider" : "_CPUExecutionProvider";
  const auto copied = static_cast<GraphValueId>(p.graph.values.size());
  p.graph.values.push_back(std::move(copy));
  p.value_on_device.push_back(to_device);
  for (std::size_t n = 0; n < p.node_on_cpu.size(); ++n) {
    GraphNode& node = p.graph.nodes[n];
    if (std::find(node.inputs.begin(), node.inputs.end(), id) == node.inputs.end()) continue;
    const Kernel* kernel = p.node_on_cpu[n] ? nullptr : kernel_of(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == id && (kernel && !reads_on_host(*kernel, i)) == to_device) node.inputs[i] = copied;
  }
  GraphNode node;
  node.op_type = to_device ? "MemcpyFromHost" : "MemcpyToHost";
  node.name = node.op_type + "_" + p.graph.values[static_cast<std::size_t>(id)].name;
  node.inputs = {id};
  node.outputs = {copied};
  p.graph.nodes.push_back(std::move(node));
}

void insert_copies(Placed& p, const Links& links) {
  const auto count = static_cast<GraphValueId>(links.consumers.size());
  std::map<std::string, std::pair<GraphValueId, bool>> crossing;  // the transformer goes by name
  const std::unordered_set<GraphValueId> given(p.graph.inputs.begin(), p.graph.inputs.end());
  for (GraphValueId id = 0; id < count; ++id) {
    const bool stored = p.graph.initializers.count(id) > 0;
    const Readers by = readers_of(p.graph, links, p.node_on_cpu, id);
    const NodeIndex maker = links.producer[static_cast<std::size_t>(id)];
    bool on_device = false;
    if (stored) {
      on_device = by.device;
    } else if (maker < 0) {
      on_device = by.device && !by.host;
      if (by.device && by.host && given.count(id))
        crossing[p.graph.values[static_cast<std::size_t>(id)].name] = {id, true};
    } else {
      const Kernel* kernel = kernel_of(p.graph.nodes[static_cast<std::size_t>(maker)]);
      on_device = !p.node_on_cpu[static_cast<std::size_t>(maker)] && kernel && !kernel->host_output;
      if (on_device ? by.host : by.device)
        crossing[p.graph.values[static_cast<std::size_t>(id)].name] = {id, !on_device};
    }
    p.value_on_device[static_cast<std::size_t>(id)] = on_device;
  }
  for (const auto& [name, what] : crossing) copy_for(p, what.first, what.second);
  p.node_on_cpu.resize(p.graph.nodes.size(), false);
}

}  // namespace

Placed place(Graph graph) {
  Placed p;
  p.graph = std::move(graph);
  const Links links = links_of(p.graph);
  p.node_on_cpu = cpu_nodes(p.graph, links);
  p.value_on_device.assign(p.graph.values.size(), false);
  insert_copies(p, links);
  return p;
}

Placed in_order(Placed placed) {
  std::vector<GraphNode> nodes;
  std::vector<bool> on_cpu;
  for (const NodeIndex n : run_order(placed.graph)) {
    nodes.push_back(std::move(placed.graph.nodes[static_cast<std::size_t>(n)]));
    on_cpu.push_back(placed.node_on_cpu[static_cast<std::size_t>(n)]);
  }
  placed.graph.nodes = std::move(nodes);
  placed.node_on_cpu = std::move(on_cpu);
  return placed;
}

std::vector<NodeIndex> run_order(const Graph& graph) {
  const Links links = links_of(graph);
  const auto count = static_cast<NodeIndex>(graph.nodes.size());
  std::vector<std::vector<NodeIndex>> before(graph.nodes.size());
  std::vector<bool> feeds(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const GraphValueId id : graph.nodes[n].inputs)
      if (id >= 0 && links.producer[static_cast<std::size_t>(id)] >= 0)
        before[n].push_back(links.producer[static_cast<std::size_t>(id)]);
    std::sort(before[n].begin(), before[n].end());
    before[n].erase(std::unique(before[n].begin(), before[n].end()), before[n].end());
    for (const NodeIndex b : before[n]) feeds[static_cast<std::size_t>(b)] = true;
  }
  std::vector<std::pair<NodeIndex, bool>> stack;  // node, whether it is left
  for (NodeIndex n = 0; n < count; ++n)
    if (!feeds[static_cast<std::size_t>(n)]) stack.emplace_back(n, false);
  std::vector<bool> seen(graph.nodes.size(), false);
  std::vector<NodeIndex> order;
  while (!stack.empty()) {
    const auto [n, leave] = stack.back();
    stack.pop_back();
    if (leave) {
      order.push_back(n);
      continue;
    }
    if (seen[static_cast<std::size_t>(n)]) continue;
    seen[static_cast<std::size_t>(n)] = true;
    stack.emplace_back(n, true);
    for (const NodeIndex b : before[static_cast<std::size_t>(n)])
      if (!seen[static_cast<std::size_t>(b)]) stack.emplace_back(b, false);
  }
  return order;
}

}  // namespace memplan::ort
