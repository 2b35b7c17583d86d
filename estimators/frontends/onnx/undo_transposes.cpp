#include "estimators/frontends/onnx/undo_transposes.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/insert_nodes.h"

namespace memplan::onnx_format {

namespace {

using Axes = std::vector<std::int64_t>;

const Axes* axes_of(const GraphNode& node) {
  const auto it = node.attributes.find("perm");
  return node.op_type == "Transpose" && it != node.attributes.end() ? std::get_if<Axes>(&it->second) : nullptr;
}

std::optional<std::size_t> axis_of(const Arg& arg, std::size_t rank) {
  const auto* n = std::get_if<std::int64_t>(&arg.value);
  const auto size = static_cast<std::int64_t>(rank);
  if (!n || *n < -size || *n >= size) return std::nullopt;
  return static_cast<std::size_t>(*n < 0 ? *n + size : *n);
}

/// How the text's own call turns a tensor of that rank.
std::optional<Axes> axes_of(const FxText& text, std::size_t rank) {
  Axes axes(rank);
  for (std::size_t i = 0; i < rank; ++i) axes[i] = static_cast<std::int64_t>(i);
  if (text.target == "torch.ops.aten.transpose.int" && text.args.size() == 3) {
    const auto a = axis_of(text.args[1], rank), b = axis_of(text.args[2], rank);
    if (!a || !b) return std::nullopt;
    std::swap(axes[*a], axes[*b]);
    return axes;
  }
  if (text.target != "torch.ops.aten.permute.default" || text.args.size() != 2) return std::nullopt;
  const auto* list = std::get_if<Arg::List>(&text.args[1].value);
  if (!list || list->size() != rank) return std::nullopt;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto axis = axis_of((*list)[i], rank);
    if (!axis) return std::nullopt;
    axes[i] = static_cast<std::int64_t>(*axis);
  }
  return axes;
}

/// The first of two transposes, where both together are `joined`: joined[j] = first[second[j]].
std::optional<Axes> first_of(const Axes& joined, const Axes& second) {
  Axes first(joined.size(), -1);
  bool turns = false;
  for (std::size_t j = 0; j < joined.size(); ++j) {
    first[static_cast<std::size_t>(second[j])] = joined[j];
    turns = turns || joined[j] != second[j];
  }
  for (const std::int64_t axis : first)
    if (axis < 0) return std::nullopt;
  return turns ? std::optional(first) : std::nullopt;
}

}  // namespace

std::optional<Graph> undo_transposes(const Graph& graph, const FxProgram& program) {
  std::vector<std::int32_t> maker(graph.values.size(), -1);          // by value
  std::vector<const FxGroup*> named(program.names.size(), nullptr);  // by name
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const GraphValueId id : graph.nodes[i].outputs)
      if (id >= 0) maker[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(i);
  for (const FxGroup& group : program.groups)
    if (group.name >= 0) named[static_cast<std::size_t>(group.name)] = &group;
  std::optional<Graph> out;
  NodesBefore before;
  for (const FxGroup& group : program.groups) {
    if (group.name < 0 || group.nodes.size() != 1 || group.text.args.empty()) continue;
    const auto at = static_cast<std::size_t>(group.nodes[0]);
    const GraphNode& node = graph.nodes[at];
    const Axes* joined = axes_of(node);
    const auto* read = std::get_if<ValueId>(&group.text.args[0].value);
    if (!joined || !read || node.inputs.size() != 1 || node.inputs[0] < 0) continue;
    const std::int32_t made = maker[static_cast<std::size_t>(node.inputs[0])];
    const auto second = axes_of(group.text, joined->size());
    const auto first = second ? first_of(*joined, *second) : std::nullopt;
    const FxGroup* call = named[static_cast<std::size_t>(read->index)];
    // The call must end where its result was to be turned.
    if (made < 0 || !first || !call || call->nodes.back() != made) continue;
    if (!out) out = graph;
    GraphNode turn;
    turn.op_type = "Transpose";
    turn.name = node.name + "_first";
    turn.metadata = graph.nodes[static_cast<std::size_t>(made)].metadata;
    turn.attributes["perm"] = *first;
    turn.inputs = node.inputs;
    GraphValue value;
    value.name = program.names[static_cast<std::size_t>(read->index)];
    value.dtype = graph.values[static_cast<std::size_t>(node.inputs[0])].dtype;
    out->values.push_back(std::move(value));
    turn.outputs = {static_cast<GraphValueId>(out->values.size() - 1)};
    out->nodes[at].inputs = turn.outputs;
    out->nodes[at].attributes["perm"] = *second;
    before[static_cast<std::size_t>(made) + 1].push_back(std::move(turn));
  }
  if (out) insert_nodes(out->nodes, before);
  return out;
}

}  // namespace memplan::onnx_format
