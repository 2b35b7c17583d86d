#include "estimators/frontends/onnx/fx_groups.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

std::string_view get(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? std::string_view{} : std::string_view(it->second);
}

/// What a name of the text stands for: a value of the graph, or a number.
using Names = std::unordered_map<std::string_view, GraphValueId>;

Names names_of(const Graph& g, const FxProgram& program) {
  Names names;
  constexpr const char* key = "pkg.torch.onnx.original_node_name";
  for (const auto& [id, t] : g.initializers) {
    for (std::string_view n : {get(t.metadata, key), get(g.values[static_cast<std::size_t>(id)].metadata, key)})
      if (!n.empty()) names.emplace(n, id);
  }
  for (GraphValueId id : g.inputs) {
    names.emplace(g.values[static_cast<std::size_t>(id)].name, id);
    if (const auto n = get(g.values[static_cast<std::size_t>(id)].metadata, key); !n.empty()) names.emplace(n, id);
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
  return names;
}

/// Arguments with FX names -> arguments with graph values; false where a name is unknown.
bool resolve(Arg& arg, const FxProgram& program, const Names& names, const Facts& facts,
             std::vector<GraphValueId>& reads) {
  if (auto* list = std::get_if<Arg::List>(&arg.value))
    return std::all_of(list->begin(), list->end(),
                       [&](Arg& item) { return resolve(item, program, names, facts, reads); });
  const auto* name = std::get_if<ValueId>(&arg.value);
  if (!name) return true;
  const auto it = names.find(program.names[static_cast<std::size_t>(name->index)]);
  if (it == names.end()) return false;
  const Fact& f = facts[it->second];
  const bool given =
      std::find(facts.graph().inputs.begin(), facts.graph().inputs.end(), it->second) != facts.graph().inputs.end();
  if (!given && f.is_one_number() && !f.contents->floating && f.rank() <= 1) {
    arg.value = f.contents->integers[0];
    return true;
  }
  reads.push_back(it->second);
  arg.value = ValueId{it->second};  // a graph value, for the time being
  return true;
}

/// An op whose one result is the output of its last node.
bool is_plain(const FxGroup& group, const Graph& g) {
  const std::string_view t = group.text.target;
  if (t.substr(0, 15) != "torch.ops.aten." || has_no_effect(t) || t.find("batch_norm") != std::string_view::npos ||
      t.find(".sym_") != std::string_view::npos)
    return false;
  for (std::string_view many : {"split", "unbind", "chunk", "lstm", "gru", "rnn_", "meshgrid", "broadcast_tensors"})
    if (t.substr(15).find(many) == 0) return false;
  if (outputs_of(op_of_target(t)) != 1) return false;
  const auto& outputs = g.nodes[static_cast<std::size_t>(group.nodes.back())].outputs;
  return std::count_if(outputs.begin(), outputs.end(), [](GraphValueId id) { return id >= 0; }) == 1 &&
         !outputs.empty() && outputs[0] >= 0;
}

}  // namespace

std::vector<std::optional<Found>> match_fx_groups(const View& v, const Graph& g) {
  std::vector<std::optional<Found>> out(g.nodes.size());
  const FxProgram program = read_fx_program(g);
  const Names names = names_of(g, program);
  for (const FxGroup& group : program.groups) {
    if (group.name < 0 || !is_plain(group, g)) continue;
    const std::unordered_set<std::int32_t> inside(group.nodes.begin(), group.nodes.end());
    const std::int32_t last = group.nodes.back();
    // What the text reads must be there, and what the nodes read must be in the text: else an optimizer rewired them.
    auto call = std::make_shared<Call>();
    call->op = op_of_target(group.text.target);
    call->args = group.text.args;
    for (const auto& [key, value] : group.text.kwargs)
      if (key != "device" && key != "pin_memory" && key != "layout") call->kwargs.emplace_back(key, value);
    Found f;
    bool known = true;
    for (Arg& a : call->args) known = known && resolve(a, program, names, v.facts, f.reads);
    for (auto& [key, a] : call->kwargs) known = known && resolve(a, program, names, v.facts, f.reads);
    if (!known) continue;
    bool same = true;
    for (std::int32_t n : group.nodes) {
      for (GraphValueId id : g.nodes[static_cast<std::size_t>(n)].inputs) {
        if (id < 0 || v.facts[id].contents || (v.producer(id) >= 0 && inside.count(v.producer(id)))) continue;
        if (v.stored(id) && v.facts[id].sizes && count_of(*v.facts[id].sizes) <= 1)
          continue;  // a constant of the op's making
        same = same && std::find(f.reads.begin(), f.reads.end(), id) != f.reads.end();
      }
      if (n != last)
        for (GraphValueId id : g.nodes[static_cast<std::size_t>(n)].outputs)
          if (id >= 0 && !v.facts[id].contents)
            for (std::int32_t outside : v.readers_of(id)) same = same && inside.count(outside);
    }
    if (!same) continue;
    f.nodes = group.nodes;
    f.op = "ATen calls";
    f.from = "the exporter's fx_node text";
    f.emit = [call, last, &v](Emit& e) {
      Call c = *call;
      replace_values(c, [&](ValueId id) { return Arg{e.tensor(id.index)}; });
      rewrite(c, e.setup);
      e.call_for(v.at(last), std::move(c.op), std::move(c.args), std::move(c.kwargs));
    };
    out[static_cast<std::size_t>(last)] = std::move(f);
  }
  return out;
}

}  // namespace memplan::onnx_format
