#include "estimators/frontends/onnx/shared_steps.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_recurrent.h"
#include "estimators/frontends/onnx/insert_nodes.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

constexpr std::size_t most_steps = 100'000;  ///< copied, of all calls together

class StepParter {
 public:
  StepParter(const Graph& g, const FxProgram& program) : old_(g), g_(g), program_(program), nodes_(g, program) {}

  std::optional<Graph> run() {
    for (std::size_t k = 0; k < program_.groups.size(); ++k)
      if (program_.groups[k].name >= 0) look(static_cast<std::int32_t>(k));
    if (before_.empty()) return std::nullopt;
    insert_nodes(g_.write().nodes, before_);
    return g_.take();
  }

 private:
  /// The other call that the value is a step of, and not the result; null where it is none.
  const FxGroup* other_call(GraphValueId id, std::int32_t group) const {
    const std::int32_t by = id < 0 ? -1 : nodes_.maker[at(id)];
    if (by < 0 || nodes_.group[at(by)] < 0 || nodes_.group[at(by)] == group) return nullptr;
    const FxGroup& other = program_.groups[at(nodes_.group[at(by)])];
    return other.name >= 0 && by != other.nodes.back() ? &other : nullptr;
  }

  /// A step of another call of the same op.
  bool is_shared(GraphValueId id, std::int32_t group) const {
    const FxGroup* other = other_call(id, group);
    return other && other->text.target == program_.groups[at(group)].text.target;
  }

  /// "sub" of `((y - x) ** 2).mean()` where the first step of another call, mse_loss of the same y and x, stands for
  /// it: the one name of the call's text that is gone, of the op of that step. Empty where the value is no such step.
  std::string_view lost_name(GraphValueId id, std::int32_t group) {
    const FxGroup* other = other_call(id, group);
    if (!other || is_recurrent(*other)) return {};
    const std::int32_t by = nodes_.maker[at(id)];
    const GraphNode& step = old_.nodes[at(by)];
    const bool first = std::ranges::none_of(step.inputs, [&](GraphValueId input) {
      return input >= 0 && nodes_.maker[at(input)] >= 0 &&
             nodes_.group[at(nodes_.maker[at(input)])] == nodes_.group[at(by)];
    });
    if (!first) return {};
    const std::string_view name = only_lost(group);
    const bool same =
        std::ranges::equal(op_of_name(name), step.op_type, {}, {}, [](unsigned char c) { return std::tolower(c); });
    return same ? name : std::string_view();
  }

  /// The one name of a call's text that nothing has; empty where there is none, or several.
  std::string_view only_lost(std::int32_t group) {
    if (!names_) names_ = values_of_names(old_, program_);
    const auto at_group = lost_.try_emplace(group);
    std::string_view& only = at_group.first->second;
    bool several = false;
    const auto look = [&](ValueId name) {
      const std::string_view text = program_.names[at(name.index)];
      if (names_->contains(text)) return;
      several = several || (!only.empty() && only != text);
      only = text;
    };
    if (at_group.second)
      for (const Arg& a : program_.groups[at(group)].text.args) for_each_value(a, look);
    if (several) only = {};
    return only;
  }

  /// Nodes that the value is made with, in order, within the call that has them.
  void gather(GraphValueId id, std::vector<std::int32_t>& steps) const {
    const std::int32_t by = nodes_.maker[at(id)];
    if (std::ranges::find(steps, by) != steps.end()) return;
    for (GraphValueId input : old_.nodes[at(by)].inputs)
      if (input >= 0 && nodes_.maker[at(input)] >= 0 &&
          nodes_.group[at(nodes_.maker[at(input)])] == nodes_.group[at(by)])
        gather(input, steps);
    steps.push_back(by);
  }

  /// Steps that work on sizes or masks alone do no harm where they stand.
  bool reads_results(const std::vector<std::int32_t>& steps) const {
    return std::ranges::any_of(steps, [&](std::int32_t n) {
      return old_.nodes[at(n)].op_type != "Shape" &&
             std::ranges::any_of(old_.nodes[at(n)].inputs, [&](GraphValueId id) {
               if (id < 0 || nodes_.maker[at(id)] < 0 || nodes_.group[at(nodes_.maker[at(id)])] == nodes_.group[at(n)])
                 return false;
               const auto& dtype = old_.values[at(id)].dtype;
               return dtype && is_floating(*dtype);
             });
    });
  }

  /// The last state of a layer that the other call is, one more of its results.
  bool is_state(const std::vector<std::int32_t>& steps) const {
    return std::ranges::any_of(steps, [&](std::int32_t n) { return is_recurrent(old_.nodes[at(n)]); });
  }

  void look(std::int32_t group) {
    const FxGroup& call = program_.groups[at(group)];
    std::unordered_map<GraphValueId, GraphValueId> own;
    for (std::int32_t n : call.nodes)
      for (std::size_t i = 0; i < old_.nodes[at(n)].inputs.size(); ++i) {
        const GraphValueId id = old_.nodes[at(n)].inputs[i];
        if (const auto it = own.find(id); it != own.end()) {
          g_.write().nodes[at(n)].inputs[i] = it->second;
          continue;
        }
        if (const std::string_view name = lost_name(id, group); !name.empty()) {
          copy(nodes_.maker[at(id)], call, own);
          g_.write().nodes[at(n)].inputs[i] = own.at(id);
          g_.write().values[at(own.at(id))].name = name;
          before_[at(call.nodes.front())].back().metadata.erase(fx_node_key);
          continue;
        }
        if (!is_shared(id, group)) continue;
        std::vector<std::int32_t> steps;
        gather(id, steps);
        copied_ += steps.size();
        if (copied_ > most_steps || !reads_results(steps) || is_state(steps)) continue;
        for (std::int32_t step : steps) copy(step, call, own);
        g_.write().nodes[at(n)].inputs[i] = own.at(id);
      }
  }

  void copy(std::int32_t step, const FxGroup& call, std::unordered_map<GraphValueId, GraphValueId>& own) {
    GraphNode node = old_.nodes[at(step)];
    const GraphNode& last = old_.nodes[at(call.nodes.back())];
    node.name += "_of_" + last.name;
    node.metadata = last.metadata;
    for (GraphValueId& id : node.inputs)
      if (const auto it = own.find(id); it != own.end()) id = it->second;
    for (GraphValueId& id : node.outputs)
      if (id >= 0) {
        GraphValue v = old_.values[at(id)];
        v.name += "_of_" + last.name;
        g_.write().values.push_back(std::move(v));
        own[id] = static_cast<GraphValueId>(g_.read().values.size() - 1);
        id = own[id];
      }
    before_[at(call.nodes.front())].push_back(std::move(node));
  }

  const Graph& old_;
  ChangedGraph g_;
  const FxProgram& program_;
  const GroupedNodes nodes_;
  NodesBefore before_;
  std::optional<ValuesOfNames> names_;                       ///< when they are asked for first
  std::unordered_map<std::int32_t, std::string_view> lost_;  ///< by group
  std::size_t copied_ = 0;
};

}  // namespace

std::optional<Graph> part_shared_steps(const Graph& graph, const FxProgram& program) {
  return StepParter(graph, program).run();
}

}  // namespace memplan::onnx_format
