#include "estimators/frontends/onnx/fx_program.h"

#include <algorithm>

namespace memplan::onnx_format {

bool has_fx_text(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const GraphNode& n) { return n.metadata.count(fx_node_key) > 0; });
}

FxProgram read_fx_program(const Graph& graph) {
  FxProgram p;
  p.index.reserve(graph.nodes.size());
  const Intern intern = [&p](std::string_view name) {
    const auto [it, fresh] = p.index.emplace(name, static_cast<std::int32_t>(p.names.size()));
    if (fresh) {
      p.names.push_back(name);
      p.is_list.push_back(false);
    }
    return ValueId{it->second};
  };
  std::unordered_map<std::string_view, std::int32_t> group_of;
  group_of.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    const auto it = node.metadata.find(fx_node_key);
    const std::string_view text = it == node.metadata.end() ? std::string_view{} : std::string_view(it->second);
    const std::string_view name = fx_name(text);
    if (!name.empty()) {
      if (!p.groups.empty() && p.groups.back().text.name == name) {
        p.groups.back().nodes.push_back(static_cast<std::int32_t>(i));
        continue;
      }
      if (auto g = group_of.find(name); g != group_of.end()) {
        p.groups[static_cast<std::size_t>(g->second)].nodes.push_back(static_cast<std::int32_t>(i));
        continue;
      }
    }
    FxGroup group;
    group.nodes.push_back(static_cast<std::int32_t>(i));
    if (!name.empty() && parse_fx(text, intern, group.text)) {
      group.name = intern(name).index;
      group_of.emplace(name, static_cast<std::int32_t>(p.groups.size()));
      if (group.text.target == "operator.getitem" && !group.text.args.empty())
        if (auto* source = std::get_if<ValueId>(&group.text.args[0].value))
          p.is_list[static_cast<std::size_t>(source->index)] = true;
    } else {
      group.text = {};
    }
    p.groups.push_back(std::move(group));
  }
  // A call happens when the last of its nodes does: only then are all its inputs there.
  auto later = [](const FxGroup& a, const FxGroup& b) { return a.nodes.back() < b.nodes.back(); };
  if (!std::is_sorted(p.groups.begin(), p.groups.end(), later))
    std::stable_sort(p.groups.begin(), p.groups.end(), later);
  return p;
}

}  // namespace memplan::onnx_format
