#include "estimators/frontends/onnx/fx_recurrent.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

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

/// Values that others read, with the output that each is.
std::optional<std::vector<std::pair<GraphValueId, std::size_t>>> results_of(const View& v, const FxGroup& group) {
  const Nodes inside(group.nodes.begin(), group.nodes.end());
  std::vector<std::pair<GraphValueId, std::size_t>> out;
  for (std::int32_t n : group.nodes)
    for (GraphValueId id : v.node(n).outputs) {
      if (id < 0 || v.inferred[id].contents) continue;
      bool read = false;
      for (std::int32_t reader : v.readers_of(id)) {
        if (inside.count(reader)) continue;
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

/// Two first states that an optimizer merged are two tensors in eager code.
void part_states(Call& call, Emit& e) {
  auto* states = call.args.size() > 1 ? std::get_if<Arg::List>(&call.args[1].value) : nullptr;
  if (!states || states->size() != 2) return;
  const auto *h = std::get_if<ValueId>(&(*states)[0].value), *c = std::get_if<ValueId>(&(*states)[1].value);
  if (!h || !c || *h != *c) return;
  for (auto made = e.tape.calls.rbegin(); made != e.tape.calls.rend(); ++made)
    if (made->op == "aten::zeros" && made->outputs.size() == 1 && made->outputs[0] == *h) {
      const Call again = *made;  // e.call() may move the calls
      (*states)[1] = {e.call(again.op, again.args, again.kwargs)};
      e.tape.calls.back().known_shapes = again.known_shapes;
      return;
    }
}

std::int64_t hidden_size(const GraphNode& node) {
  const auto it = node.attributes.find("hidden_size");
  const auto* n = it != node.attributes.end() ? std::get_if<std::int64_t>(&it->second) : nullptr;
  return n ? *n : 0;
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

std::optional<Found> match_recurrent(const View& v, const FxGroup& group, const FxProgram& program,
                                     const std::unordered_map<std::string_view, GraphValueId>& names) {
  const auto results = results_of(v, group);
  if (!results) return std::nullopt;
  auto call = std::make_shared<Call>();
  call->op = op_of_target(group.text.target);
  call->args = group.text.args;
  bool known = true;
  Found f;
  replace_values(*call, [&](ValueId name) {
    const auto it = names.find(program.names[static_cast<std::size_t>(name.index)]);
    known = known && it != names.end();
    if (it == names.end()) return Arg{};
    f.reads.push_back(it->second);
    return Arg{ValueId{it->second}};  // a graph value, for the time being
  });
  if (!known) return std::nullopt;
  f.nodes = group.nodes;
  f.op = "ATen calls";
  f.from = "the exporter's fx_node text";
  f.emit = [call, results = *results, name = std::string(group.text.name)](Emit& e) {
    Call c = *call;
    replace_values(c, [&](ValueId id) { return Arg{e.tensor(id.index)}; });
    part_states(c, e);
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
