#include "estimators/frontends/onnx/lost_twins.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

LostTwins::LostTwins(const Graph& graph, const Signature& signature) : graph_(graph) {
  for (const SignatureLine& line : signature.inputs) {
    missing_.insert(line.target);
    lines_.emplace(line.target, &line);
    targets_.emplace(line.name, line.target);
  }
  for (const auto& [id, t] : graph.initializers) {
    missing_.erase(t.name);
    for (const std::string_view name : folded_from(graph, id)) missing_.erase(name);
  }
}

bool LostTwins::has_own(const std::vector<GraphValueId>& parameters, std::string_view module, const FxProgram& program,
                        const FxGroup& reader) const {
  const auto is_read = [&](std::string_view leaf) {
    return std::ranges::any_of(tensors_of(reader), [&](ValueId id) {
      const auto it = targets_.find(program.names[at(id.index)]);
      return it != targets_.end() && leaf_of(it->second) == leaf;
    });
  };
  return std::ranges::any_of(parameters, [&](GraphValueId id) {
    const std::string_view path = graph_.initializers.at(id).name, leaf = leaf_of(path);
    const std::string own = fmt::format("{}.{}", module, leaf);
    return path != own && missing_.contains(own) && !is_read(leaf);
  });
}

std::string LostTwins::sibling(const std::vector<GraphValueId>& parameters, std::string_view module,
                               std::string_view lines) const {
  const std::string_view parent = module.substr(0, module.rfind('.') == module.npos ? 0 : module.rfind('.') + 1);
  std::vector<std::string_view> leaves;
  for (const GraphValueId id : parameters)
    if (const std::string_view name = graph_.initializers.at(id).name;
        is_within(name, module) && name.size() > module.size())
      leaves.push_back(name.substr(module.size()));  // ".weight"
  if (leaves.empty() || module.empty()) return {};
  std::string found;
  for (auto open = lines.find('('); open != lines.npos; open = lines.find('(', open + 1)) {
    std::size_t first = open;
    while (first > 0 && lines[first - 1] != '.' && lines[first - 1] != ' ' && lines[first - 1] != '(') --first;
    if (first == open || first == 0 || lines[first - 1] != '.') continue;
    const std::string beside = fmt::format("{}{}", parent, lines.substr(first, open - first));
    if (beside == module || beside == found || !std::ranges::all_of(leaves, [&](std::string_view leaf) {
          return missing_.contains(beside + std::string(leaf));
        }))
      continue;
    if (!found.empty()) return {};
    found = beside;
  }
  return found;
}

std::unordered_map<std::string, std::string> LostTwins::read_twins(GraphNode& node, const Parting& apart,
                                                                   ChangedGraph& g) {
  std::unordered_map<std::string, std::string> out;
  if (apart.root.empty()) return out;
  for (GraphValueId& id : node.inputs) {
    const auto stored = graph_.initializers.find(id);
    if (stored == graph_.initializers.end() || !is_within(stored->second.name, apart.root)) continue;
    if (!may_be_merged(stored->second.sizes)) continue;  // one tensor with two names
    const std::string twin = moved(stored->second.name, apart);
    const auto mine = lines_.find(stored->second.name), its = lines_.find(twin);
    if (!missing_.contains(twin) || mine == lines_.end() || its == lines_.end()) continue;
    out.emplace(mine->second->name, its->second->name);
    const auto [known, fresh] = twins_.emplace(twin, -1);
    if (fresh) known->second = add_stored(g.write(), *its->second, stored->second.dtype, stored->second.sizes);
    id = known->second;
  }
  return out;
}

}  // namespace memplan::onnx_format
