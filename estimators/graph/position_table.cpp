#include "estimators/graph/position_table.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace memplan {

namespace {

constexpr std::size_t search_limit = 512;  ///< values looked at behind one index; position arithmetic is short

class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      for (GraphValueId id : graph.nodes[n].outputs)
        if (id >= 0) maker_.emplace(id, n);
    inputs_.insert(graph.inputs.begin(), graph.inputs.end());
  }

  /// Whether an index is counted from shapes; `offset` gets the constants added on the way.
  bool counted(GraphValueId index, std::int64_t& offset) const {
    std::vector<GraphValueId> open{index};
    std::unordered_set<GraphValueId> seen{index};
    bool counts = false, from_shape = false;
    while (!open.empty()) {
      const GraphValueId id = open.back();
      open.pop_back();
      if (inputs_.count(id) || seen.size() > search_limit) return false;
      const auto it = maker_.find(id);
      if (it == maker_.end()) continue;
      const GraphNode& node = graph_.nodes[it->second];
      if (node.op_type == "Shape") {
        from_shape = true;
        continue;
      }
      counts = counts || node.op_type == "Range" || node.op_type == "CumSum" || node.op_type == "Slice";
      if (node.op_type == "Add")
        for (GraphValueId input : node.inputs) offset += constant(input).value_or(0);
      for (GraphValueId input : node.inputs)
        if (input >= 0 && seen.insert(input).second) open.push_back(input);
    }
    return counts && from_shape;
  }

 private:
  std::optional<std::int64_t> constant(GraphValueId id) const {
    const StoredTensor* stored = nullptr;
    if (auto it = graph_.initializers.find(id); it != graph_.initializers.end()) stored = &it->second;
    if (auto it = maker_.find(id); it != maker_.end() && graph_.nodes[it->second].op_type == "Constant") {
      const auto& attributes = graph_.nodes[it->second].attributes;
      if (auto a = attributes.find("value"); a != attributes.end()) stored = std::get_if<StoredTensor>(&a->second);
      if (auto a = attributes.find("value_int"); a != attributes.end())
        if (const auto* n = std::get_if<std::int64_t>(&a->second)) return *n;
    }
    if (!stored || stored->integers.size() != 1) return std::nullopt;
    return stored->integers[0];
  }

  const Graph& graph_;
  std::unordered_map<GraphValueId, std::size_t> maker_;
  std::unordered_set<GraphValueId> inputs_;
};

}  // namespace

std::optional<PositionTable> find_position_table(const Graph& graph) {
  std::optional<Search> search;
  std::optional<PositionTable> best;
  for (const GraphNode& node : graph.nodes) {
    if (node.op_type != "Gather" || node.inputs.size() != 2) continue;
    const auto table = graph.initializers.find(node.inputs[0]);
    if (table == graph.initializers.end() || table->second.sizes.size() != 2 || !is_floating(table->second.dtype))
      continue;
    if (!search) search.emplace(graph);
    std::int64_t offset = 0;
    if (!search->counted(node.inputs[1], offset)) continue;
    const std::int64_t length = table->second.sizes[0] - std::clamp<std::int64_t>(offset, 0, 16);
    if (length > 0 && (!best || length > best->length)) best = {table->second.name, length};
  }
  return best;
}

}  // namespace memplan
