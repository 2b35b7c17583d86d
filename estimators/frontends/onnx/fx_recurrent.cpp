#include "estimators/frontends/onnx/fx_recurrent.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include "estimators/frontends/onnx/copied_calls.h"
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

/// `torch.zeros(...)` and `x.new_zeros(...)`, by the names of their results and as calls.
bool are_zeros(std::string_view op) { return op == "zeros" || op == "new_zeros"; }
bool makes_zeros(const Call& call) { return call.op == "aten::zeros" || call.op == "aten::new_zeros"; }

/// A tensor of zeros once more, if the value is one.
std::optional<ValueId> zeros_again(ValueId id, Emit& e) {
  for (auto made = e.tape.calls.rbegin(); made != e.tape.calls.rend(); ++made)
    if (makes_zeros(*made) && made->outputs.size() == 1 && made->outputs[0] == id) {
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

/// The zeros that the layer's nodes read in the place of those of a name that is gone. `zeros`: those with a name.
std::optional<GraphValueId> other_zeros(const View& v, const FxGroup& group, std::string_view name,
                                        const std::unordered_set<GraphValueId>& zeros) {
  if (!are_zeros(op_of_name(name))) return std::nullopt;
  for (std::int32_t n : group.nodes)
    for (GraphValueId id : v.node(n).inputs)
      if (zeros.contains(id)) return id;
  return std::nullopt;
}

/// What a layer reads and an optimizer joined with the layer's own nodes or took out.
struct Lost {
  std::size_t place = 0;  ///< in places_of
  GraphValueId of = -1;   ///< what the call that is gone read
  std::string op;         ///< "permute", "clone", "contiguous" or "detach"
  Sizes order;            ///< of a permute
};

/// Where a call has its input and, after it, its states.
std::vector<Arg*> places_of(Call& call) {
  std::vector<Arg*> out;
  if (call.args.size() < 2) return out;
  out.push_back(&call.args[0]);
  if (auto* states = std::get_if<Arg::List>(&call.args[1].value))
    for (Arg& state : *states) out.push_back(&state);
  else
    out.push_back(&call.args[1]);
  return out;
}

/// "x.permute(0, 2, 1)" of a layer with `batch_first`, whose own transposition is one with it, and
/// "h.expand(2, -1, -1).contiguous()" of a state.
std::optional<Lost> lost_at(const View& v, const FxGroup& group, std::size_t place, std::string_view name) {
  const auto layer = std::ranges::find_if(group.nodes, [&](std::int32_t n) { return is_recurrent(v.node(n)); });
  if (layer == group.nodes.end()) return std::nullopt;
  const std::string_view op = op_of_name(name);
  const GraphValueId read = v.input(*layer, place == 0 ? 0 : 4 + place);
  const std::int32_t by = v.producer(read);
  if (by < 0 || v.node(by).inputs.empty()) return std::nullopt;
  const std::string& made_by = v.node(by).op_type;
  if (place > 0) {
    const bool known = (op == "clone" || op == "detach") && made_by == "Slice";  // the layer's own part
    return known ? std::optional(Lost{place, v.input(by, 0), std::string(op), {}}) : std::nullopt;
  }
  const bool inside = std::ranges::find(group.nodes, by) != group.nodes.end();
  if (op == "clone" && !inside)  // `x.transpose(0, 1).contiguous()`
    return Lost{place, read, asks_for_copy(v.node(by)) ? "clone" : "contiguous", {}};
  const auto order = v.at(by).list("perm");
  if ((op != "permute" && op != "transpose") || made_by != "Transpose" || !inside || !order ||
      !std::ranges::is_permutation(*order, Sizes{0, 1, 2}))
    return std::nullopt;
  return Lost{place, v.input(by, 0), "permute", {(*order)[1], (*order)[0], (*order)[2]}};
}

/// cuDNN takes no state that is not contiguous (RNN.cpp), so one that is detached was made so where it was not.
ValueId made_again(const Lost& l, Emit& e) {
  const Arg of = {e.tensor(l.of)};
  if (l.op == "permute") return e.call("aten::permute", {of, list_of(l.order)});
  if (l.op == "clone" || l.op == "contiguous") return e.call("aten::" + l.op, {of});
  return e.call("aten::detach", {{e.call("aten::contiguous", {of})}});
}

/// Those of a call with names instead of values, which lose their places in it.
std::vector<Lost> take_lost(const View& v, const FxGroup& group, const FxProgram& program,
                            const std::unordered_map<std::string_view, GraphValueId>& names, Call& call) {
  std::vector<Lost> out;
  const std::vector<Arg*> places = places_of(call);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto* id = std::get_if<ValueId>(&places[i]->value);
    const std::string_view name = id ? program.names[static_cast<std::size_t>(id->index)] : std::string_view{};
    const auto lost = id && !names.contains(name) ? lost_at(v, group, i, name) : std::nullopt;
    if (!lost) continue;
    out.push_back(*lost);
    *places[i] = Arg{};
  }
  return out;
}

std::int64_t hidden_size(const GraphNode& node) {
  const auto it = node.attributes.find("hidden_size");
  const auto* n = it != node.attributes.end() ? std::get_if<std::int64_t>(&it->second) : nullptr;
  return n ? *n : 0;
}

std::optional<Found> match_call(const View& v, const FxGroup& group, const FxProgram& program,
                                const std::unordered_map<std::string_view, GraphValueId>& names,
                                const std::unordered_set<GraphValueId>& named_zeros, const Nodes& arranged) {
  const auto results = results_of(v, group, arranged);
  if (!results) return std::nullopt;
  auto call = std::make_shared<Call>();
  call->op = op_of_target(group.text.target);
  call->args = group.text.args;
  bool known = true, of_other_call = false;
  Found f;
  const std::vector<Lost> lost = take_lost(v, group, program, names, *call);
  for (const Lost& each : lost) f.reads.push_back(each.of);
  replace_values(*call, [&](ValueId name) {
    const std::string_view text = program.names[static_cast<std::size_t>(name.index)];
    const auto it = names.find(text);
    const auto zeros = it == names.end() ? other_zeros(v, group, text, named_zeros) : std::nullopt;
    known = known && (it != names.end() || zeros);
    of_other_call = of_other_call || zeros;
    if (it == names.end() && !zeros) return Arg{};
    const GraphValueId id = zeros ? *zeros : it->second;
    f.reads.push_back(id);
    return Arg{ValueId{id}};  // a graph value, for the time being
  });
  if (!known) return std::nullopt;
  f.nodes = group.nodes;
  for (const auto& [id, which] : *results) f.makes.push_back(id);
  f.op = "ATen calls";
  f.from = "the exporter's fx_node text";
  f.emit = [call, of_other_call, lost, results = *results, name = std::string(group.text.name)](Emit& e) {
    Call c = *call;
    replace_values(c, [&](ValueId id) { return Arg{e.tensor(id.index)}; });
    const std::vector<Arg*> places = places_of(c);
    for (const Lost& l : lost) *places[l.place] = {made_again(l, e)};
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
  std::unordered_set<GraphValueId> zeros;
  for (const auto& [name, id] : names)
    if (are_zeros(op_of_name(name))) zeros.insert(id);
  const auto match = [&](const Nodes& arranged) {
    out.clear();
    bool all = true;
    for (std::size_t i = 0; i < program.groups.size(); ++i) {
      if (program.groups[i].name < 0 || !is_recurrent(program.groups[i])) continue;
      if (auto found = match_call(v, program.groups[i], program, names, zeros, arranged))
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
