#include "estimators/frontends/onnx/undo_transposes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/insert_nodes.h"
#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

namespace {

using Axes = std::vector<std::int64_t>;

Axes in_order(std::size_t rank) {
  Axes axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// How a node turns its input; empty where it does not say. An Identity is two that undo each other.
Axes axes_of(const GraphNode& node, const FxText& text) {
  if (node.op_type == "Identity" && text.target == "torch.ops.aten.permute.default" && text.args.size() == 2)
    if (const auto* list = std::get_if<Arg::List>(&text.args[1].value)) return in_order(list->size());
  const auto it = node.attributes.find("perm");
  const auto* axes =
      node.op_type == "Transpose" && it != node.attributes.end() ? std::get_if<Axes>(&it->second) : nullptr;
  return axes ? *axes : Axes{};
}

std::optional<std::size_t> axis_of(const Arg& arg, std::size_t rank) {
  const auto* n = std::get_if<std::int64_t>(&arg.value);
  const auto size = static_cast<std::int64_t>(rank);
  if (!n || *n < -size || *n >= size) return std::nullopt;
  return static_cast<std::size_t>(*n < 0 ? *n + size : *n);
}

/// How the text's own call turns a tensor of that rank.
std::optional<Axes> axes_of(const FxText& text, std::size_t rank) {
  Axes axes = in_order(rank);
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

class Turns {
 public:
  Turns(const Graph& graph, const FxProgram& program)
      : graph_(graph), program_(program), maker_(graph.values.size(), -1), named_(program.names.size(), nullptr) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      for (const GraphValueId id : graph.nodes[i].outputs)
        if (id >= 0) maker_[at(id)] = static_cast<std::int32_t>(i);
    for (const FxGroup& group : program.groups) {
      if (group.name >= 0) named_[at(group.name)] = &group;
      ends_.emplace(group.nodes.back(), &group);
    }
  }

  std::optional<Graph> run() {
    for (const FxGroup& group : program_.groups) {
      if (group.name < 0 || group.text.args.empty()) continue;
      if (group.nodes.size() == 1) look(group);
      if (group.text.target == "torch.ops.aten.slice_scatter.default") look_inside(group);
    }
    if (out_) insert_nodes(out_->nodes, before_);
    return std::move(out_);
  }

 private:
  void look(const FxGroup& group) {
    const GraphNode& node = graph_.nodes[at(group.nodes[0])];
    const Axes joined = axes_of(node, group.text);
    const auto* read = std::get_if<ValueId>(&group.text.args[0].value);
    if (joined.empty() || !read || node.inputs.size() != 1 || node.inputs[0] < 0) return;
    if (const auto second = axes_of(group.text, joined.size())) part(at(group.nodes[0]), joined, *second, *read);
  }

  /// `y[:, :-1, :n] = x`, a write into a slice of a slice: each is made with its dimension turned to the front.
  void look_inside(const FxGroup& group) {
    for (const std::int32_t n : group.nodes) {
      const GraphNode& node = graph_.nodes[at(n)];
      const Axes joined = axes_of(node, group.text);
      const auto dim = group.text.args.size() > 2 ? axis_of(group.text.args[2], joined.size()) : std::nullopt;
      if (joined.empty() || !dim || node.inputs.size() != 1 || node.inputs[0] < 0) continue;
      Axes second = in_order(joined.size());
      std::swap(second[0], second[*dim]);
      for (std::size_t i = 0; i < 2; ++i) {
        const auto* read = std::get_if<ValueId>(&group.text.args[i].value);
        const FxGroup* call = read ? named_[at(read->index)] : nullptr;
        if (call && call->nodes.back() == maker_[at(node.inputs[0])]) part(at(n), joined, second, *read);
      }
    }
  }

  /// Parts a node that turns by `joined` into one that turns what the name `read` was to hold, and one by `second`.
  void part(std::size_t last, const Axes& joined, const Axes& second, ValueId read) {
    const GraphNode& node = graph_.nodes[last];
    const std::int32_t made = maker_[at(node.inputs[0])];
    const auto first = first_of(joined, second);
    const FxGroup* call = named_[at(read.index)];
    // The call must end where its result was to be turned; one that nothing is left of turned what is read.
    if (made < 0 || !first || (call && call->nodes.back() != made)) return;
    GraphNode turn;
    turn.op_type = "Transpose";
    turn.name = node.name + "_first";
    turn.metadata = graph_.nodes[at(made)].metadata;
    turn.attributes["perm"] = *first;
    turn.inputs = node.inputs;
    GraphValue value;
    value.name = program_.names[at(read.index)];
    value.dtype = graph_.values[at(node.inputs[0])].dtype;
    if (!call && !tell(turn, value, *first, made)) return;
    if (!out_) out_ = graph_;
    out_->values.push_back(std::move(value));
    turn.outputs = {static_cast<GraphValueId>(out_->values.size() - 1)};
    GraphNode& changed = out_->nodes[last];
    changed.op_type = "Transpose";
    changed.inputs = turn.outputs;
    changed.attributes["perm"] = second;
    before_[at(made) + 1].push_back(std::move(turn));
  }

  /// The text of a turn that the file has no trace of, `x.permute(0, 3, 1, 2).contiguous()` in front of one that turns
  /// back. What else lay between the two, a copy, still has its name in the text of the second.
  bool tell(GraphNode& turn, GraphValue& value, const Axes& axes, std::int32_t made) const {
    const auto by = ends_.find(made);
    if (by == ends_.end() || by->second->name < 0) return false;
    const std::string_view op = op_of_name(value.name);
    if (op != "permute" && op != "transpose") value.name = turn.name;
    turn.metadata[fx_node_key] = fmt::format(
        "%{} : [num_users=1] = call_function[target=torch.ops.aten.permute.default](args = (%{}, [{}]), "
        "kwargs = {{}})",
        value.name, by->second->text.name, fmt::join(axes, ", "));
    return true;
  }

  const Graph& graph_;
  const FxProgram& program_;
  std::vector<std::int32_t> maker_;                        ///< by value
  std::vector<const FxGroup*> named_;                      ///< by name
  std::unordered_map<std::int32_t, const FxGroup*> ends_;  ///< by a call's last node
  NodesBefore before_;
  std::optional<Graph> out_;
};

}  // namespace

std::optional<Graph> undo_transposes(const Graph& graph, const FxProgram& program) {
  return Turns(graph, program).run();
}

bool may_be_joined(const Graph& graph, std::size_t i, std::int32_t made) {
  return graph.nodes[i].op_type == "Transpose" && (made < 0 || graph.nodes[at(made)].op_type != "Transpose");
}

}  // namespace memplan::onnx_format
