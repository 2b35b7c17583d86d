#include "estimators/frontends/onnx/fx_recurrent.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

using Nodes = std::unordered_set<std::int32_t>;

/// Which output of the layers a value of the group is: Y, Y_h or Y_c, arranged by the nodes between.
std::optional<std::size_t> output_behind(const View& v, const Nodes& inside, GraphValueId id) {
  for (std::size_t steps = 0; steps <= inside.size(); ++steps) {
    const std::int32_t by = v.producer(id);
    if (!inside.count(by)) return std::nullopt;
    const GraphNode& node = v.node(by);
    if (is_recurrent(node)) return static_cast<std::size_t>(std::ranges::find(node.outputs, id) - node.outputs.begin());
    if (node.inputs.empty()) return std::nullopt;
    id = node.inputs[0];
  }
  return std::nullopt;
}

/// Nodes of all recurrent calls.
Nodes nodes_of_recurrent(const FxProgram& program) {
  Nodes out;
  for (const FxGroup& group : program.groups)
    if (is_recurrent(group)) out.insert(group.nodes.begin(), group.nodes.end());
  return out;
}

/// Values that others read, with the output that each is. Of `arranged` ones, weights that several calls of one module
/// share, no call of eager code reads anything.
std::optional<std::vector<std::pair<GraphValueId, std::size_t>>> results_of(const View& v, const FxGroup& group,
                                                                            const Nodes& arranged) {
  const Nodes inside(group.nodes.begin(), group.nodes.end());
  std::vector<std::pair<GraphValueId, std::size_t>> out;
  for (std::int32_t n : group.nodes)
    for (GraphValueId id : v.node(n).outputs) {
      if (id < 0 || v.inferred[id].contents) continue;
      bool read = false;
      for (std::int32_t reader : v.readers_of(id)) {
        if (inside.count(reader)) continue;
        if (arranged.count(reader) && !output_behind(v, inside, id)) continue;
        if (reader >= 0 && reader < group.nodes.back()) return std::nullopt;
        read = true;
      }
      if (!read) continue;
      const auto which = output_behind(v, inside, id);
      if (!which) return std::nullopt;
      out.emplace_back(id, *which);
    }
  return out;
}

/// A tensor of zeros once more, if the value is one.
std::optional<ValueId> zeros_again(ValueId id, Emit& e) {
  for (auto made = e.tape.calls.rbegin(); made != e.tape.calls.rend(); ++made)
    if (made->op == "aten::zeros" && made->outputs.size() == 1 && made->outputs[0] == id) {
      const Call again = *made;  // e.call() may move the calls
      const ValueId copy = e.call(again.op, again.args, again.kwargs);
      e.tape.calls.back().known_shapes = again.known_shapes;
      return copy;
    }
  return std::nullopt;
}

/// Two first states that an optimizer merged are two tensors in eager code, and others than those of an earlier call.
void part_states(Call& call, bool of_other_call, Emit& e) {
  auto* states = call.args.size() > 1 ? std::get_if<Arg::List>(&call.args[1].value) : nullptr;
  if (!states) return;
  for (std::size_t i = 0; i < states->size(); ++i) {
    const auto *first = std::get_if<ValueId>(&(*states)[0].value), *id = std::get_if<ValueId>(&(*states)[i].value);
    if (!id || !(of_other_call || (i > 0 && first && *first == *id))) continue;
    if (const auto copy = zeros_again(*id, e)) (*states)[i] = {*copy};
  }
}

/// The zeros that the layer's nodes read in the place of those of a name that is gone.
std::optional<GraphValueId> other_zeros(const View& v, const FxGroup& group, std::string_view name) {
  if (op_of_name(name) != "zeros") return std::nullopt;
  for (std::int32_t n : group.nodes)
    for (GraphValueId id : v.node(n).inputs)
      if (id >= 0 && op_of_name(v.graph.values[static_cast<std::size_t>(id)].name) == "zeros") return id;
  return std::nullopt;
}

std::int64_t hidden_size(const GraphNode& node) {
  const auto it = node.attributes.find("hidden_size");
  const auto* n = it != node.attributes.end() ? std::get_if<std::int64_t>(&it->second) : nullptr;
  return n ? *n : 0;
}

std::optional<Found> match_call(const View& v, const FxGroup& group, const FxProgram& program,
                                const std::unordered_map<std::string_view, GraphValueId>& names,
                                const Nodes& arranged) {
  const auto results = results_of(v, group, arranged);
  if (!results) return std::nullopt;
  auto call = std::make_shared<Call>();
  call->op = op_of_target(group.text.target);
  call->args = group.text.args;
  bool known = true, of_other_call = false;
  Found f;
  replace_values(*call, [&](ValueId name) {
    const std::string_view text = program.names[static_cast<std::size_t>(name.index)];
    const auto it = names.find(text);
    const auto zeros = it == names.end() ? other_zeros(v, group, text) : std::nullopt;
    known = known && (it != names.end() || zeros);
    of_other_call = of_other_call || zeros;
    if (it == names.end() && !zeros) return Arg{};
    const GraphValueId id = zeros ? *zeros : it->second;
    f.reads.push_back(id);
    return Arg{ValueId{id}};  // a graph value, for the time being
  });
  if (!known) return std::nullopt;
  f.nodes = group.nodes;
  f.op = "ATen calls";
  f.from = "the exporter's fx_node text";
  f.emit = [call, of_other_call, results = *results, name = std::string(group.text.name)](Emit& e) {
    Call c = *call;
    replace_values(c, [&](ValueId id) { return Arg{e.tensor(id.index)}; });
    part_states(c, of_other_call, e);
    rewrite(c, e.setup);
    c.scope = e.scope;
    const int count = outputs_of(c.op);
    for (int i = 0; i < count; ++i) {
      TapeValue value;
      value.name = name + "." + std::to_string(i);
      c.outputs.push_back(e.tape.add_value(std::move(value)));
    }
    for (const auto& [id, which] : results)
      if (which < c.outputs.size()) e.bind(id, c.outputs[which]);
    e.tape.calls.push_back(std::move(c));
  };
  return f;
}

}  // namespace

bool is_recurrent(const GraphNode& node) {
  return node.op_type == "LSTM" || node.op_type == "GRU" || node.op_type == "RNN";
}

bool is_recurrent(const FxGroup& group) {
  for (std::string_view op : {"lstm", "gru", "rnn_tanh", "rnn_relu"})
    if (group.text.target == "torch.ops.aten." + std::string(op) + ".input") return true;
  return false;
}

std::vector<std::pair<std::size_t, Found>> match_recurrent(
    const View& v, const FxProgram& program, const std::unordered_map<std::string_view, GraphValueId>& names) {
  std::vector<std::pair<std::size_t, Found>> out;
  const auto match = [&](const Nodes& arranged) {
    out.clear();
    bool all = true;
    for (std::size_t i = 0; i < program.groups.size(); ++i) {
      if (program.groups[i].name < 0 || !is_recurrent(program.groups[i])) continue;
      if (auto found = match_call(v, program.groups[i], program, names, arranged))
        out.emplace_back(i, std::move(*found));
      else
        all = false;
    }
    return all;
  };
  // What arranges weights for several calls is needed where one of them is left to its nodes.
  if (!match(nodes_of_recurrent(program))) match({});
  return out;
}

std::vector<std::int64_t> recurrent_sizes(const Graph& graph, const GraphNode& node, std::size_t which) {
  const std::int64_t hidden = hidden_size(node);
  if (hidden <= 0 || hidden > (std::int64_t{1} << 40)) return {};
  const std::int64_t rows = hidden * (node.op_type == "LSTM" ? 4 : node.op_type == "GRU" ? 3 : 1);
  if (which >= 2) return {rows};
  if (which == 1) return {rows, hidden};
  const auto w = node.inputs.size() > 1 ? graph.initializers.find(node.inputs[1]) : graph.initializers.end();
  if (w == graph.initializers.end() || w->second.sizes.size() != 3) return {};
  return {rows, w->second.sizes[2]};
}

std::vector<std::int64_t> projected_sizes(const GraphNode& node, std::int64_t rows, std::size_t which,
                                          std::size_t each) {
  const std::int64_t projected = hidden_size(node);
  if (rows <= 0 || projected <= 0 || which == 0) return {};
  if (which + 1 == each) return {projected, rows / 4};
  return which == 1 ? std::vector{rows, projected} : std::vector{rows};
}

}  // namespace memplan::onnx_format
