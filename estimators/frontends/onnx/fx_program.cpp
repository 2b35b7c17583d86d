#include "estimators/frontends/onnx/fx_program.h"

#include <algorithm>

#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

using GroupOfName = std::unordered_map<std::string_view, std::int32_t>;

bool makes_from_sizes(const FxGroup& group) {
  constexpr std::string_view aten = "torch.ops.aten.";
  if (!group.text.target.starts_with(aten)) return false;
  const std::string_view op = group.text.target.substr(aten.size());
  return op == "zeros.default" || op == "ones.default" || op == "full.default" || op == "empty.memory_format";
}

/// Equal calls of torch.zeros and its like are merged by an optimizer, and eager code makes each: an LSTM's first
/// states. A name that nothing makes is one of them where the same call reads another one.
void part_merged(const Graph& graph, const GroupOfName& group_of, FxProgram& p) {
  std::vector<FxGroup> more;
  std::unordered_map<std::string_view, bool> done;
  for (const FxGroup& group : p.groups) {
    std::vector<std::string_view> unknown;
    std::unordered_map<std::string_view, const FxGroup*> made;  // by the op that names it
    const auto look = [&](ValueId id) {
      const std::string_view name = p.names[static_cast<std::size_t>(id.index)];
      const auto by = group_of.find(name);
      if (by == group_of.end())
        unknown.push_back(name);
      else if (const FxGroup& maker = p.groups[static_cast<std::size_t>(by->second)]; makes_from_sizes(maker))
        made.emplace(op_of_name(name), &maker);
    };
    for (const Arg& a : group.text.args) for_each_value(a, look);
    for (std::string_view name : unknown) {
      const auto twin = made.find(op_of_name(name));
      if (twin == made.end() || !done.emplace(name, true).second) continue;
      if (std::ranges::any_of(graph.values, [&](const GraphValue& v) { return v.name == name; })) continue;
      FxGroup again = *twin->second;
      again.text.name = name;
      again.name = p.find(name);
      more.push_back(std::move(again));
    }
  }
  for (FxGroup& group : more) p.groups.push_back(std::move(group));
}

}  // namespace

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
  GroupOfName group_of;
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
  part_merged(graph, group_of, p);
  // A call happens when the last of its nodes does: only then are all its inputs there.
  auto later = [](const FxGroup& a, const FxGroup& b) { return a.nodes.back() < b.nodes.back(); };
  if (!std::is_sorted(p.groups.begin(), p.groups.end(), later))
    std::stable_sort(p.groups.begin(), p.groups.end(), later);
  return p;
}

bool is_complete_fx(const Graph& g, const FxProgram& program) {
  std::vector<bool> made(program.names.size(), false);
  auto mark = [&](std::string_view name) {
    if (const std::int32_t n = program.find(name); n >= 0) made[static_cast<std::size_t>(n)] = true;
  };
  for (const FxGroup& group : program.groups)
    if (group.name >= 0) made[static_cast<std::size_t>(group.name)] = true;
  // The elements of a list are known by their own nodes alone, those of a tuple by the outputs of its nodes too.
  for (const FxGroup& group : program.groups) {
    const bool tuple = group.name < 0 || outputs_of(op_of_target(group.text.target)) > 1;
    for (std::int32_t n : group.nodes)
      for (GraphValueId id : g.nodes[static_cast<std::size_t>(n)].outputs)
        if (const std::string_view name = id < 0 ? std::string_view{} : g.values[static_cast<std::size_t>(id)].name;
            tuple || name.substr(0, 7) != "getitem")
          mark(name);
  }
  for (GraphValueId id : g.inputs) {
    const GraphValue& v = g.values[static_cast<std::size_t>(id)];
    mark(v.name);
    mark(note_at(v.metadata, original_name_key));
  }
  for (const auto& [id, t] : g.initializers) {
    mark(note_at(t.metadata, original_name_key));
    mark(note_at(g.values[static_cast<std::size_t>(id)].metadata, original_name_key));
  }
  const Signature signature = signature_of(g);
  for (const SignatureLine& line : signature.inputs) mark(line.name);
  for (const SignatureLine& line : signature.outputs) mark(line.name);
  return std::all_of(made.begin(), made.end(), [](bool m) { return m; });
}

ValuesOfNames values_of_names(const Graph& g, const FxProgram& program) {
  ValuesOfNames names;
  for (const auto& [id, t] : g.initializers) {
    for (std::string_view n : {note_at(t.metadata, original_name_key),
                               note_at(g.values[static_cast<std::size_t>(id)].metadata, original_name_key)})
      if (!n.empty()) names.emplace(n, id);
  }
  for (GraphValueId id : g.inputs) {
    names.emplace(g.values[static_cast<std::size_t>(id)].name, id);
    if (const auto n = note_at(g.values[static_cast<std::size_t>(id)].metadata, original_name_key); !n.empty())
      names.emplace(n, id);
  }
  for (const GraphNode& n : g.nodes)
    for (GraphValueId id : n.outputs)
      if (id >= 0) names.emplace(g.values[static_cast<std::size_t>(id)].name, id);
  for (const FxGroup& group : program.groups)
    if (group.name >= 0)
      for (GraphValueId id : g.nodes[static_cast<std::size_t>(group.nodes.back())].outputs)
        if (id >= 0) {
          names.emplace(group.text.name, id);
          break;
        }
  // What was folded has the name of the last call that went into it.
  for (const auto& [id, t] : g.initializers) names.emplace(t.name, id);
  return names;
}

GroupedNodes::GroupedNodes(const Graph& graph, const FxProgram& program)
    : group(graph.nodes.size(), -1), maker(graph.values.size(), -1), call(graph.values.size(), -1) {
  for (std::size_t k = 0; k < program.groups.size(); ++k) {
    for (const std::int32_t n : program.groups[k].nodes) {
      group[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(k);
      for (const GraphValueId id : graph.nodes[static_cast<std::size_t>(n)].outputs)
        if (id >= 0) maker[static_cast<std::size_t>(id)] = n;
    }
    const auto& made = graph.nodes[static_cast<std::size_t>(program.groups[k].nodes.back())].outputs;
    if (program.groups[k].name >= 0 && !made.empty() && made[0] >= 0)
      call[static_cast<std::size_t>(made[0])] = static_cast<std::int32_t>(k);
  }
}

}  // namespace memplan::onnx_format
