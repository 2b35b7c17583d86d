#include "estimators/frontends/onnx/call_reads.h"

#include <algorithm>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

CallReads::CallReads(const Graph& graph, const FxProgram& program, const GroupedNodes& nodes)
    : graph_(graph), program_(program), nodes_(nodes), inputs_(graph.inputs.begin(), graph.inputs.end()) {}

std::vector<CallRead> CallReads::of(const FxGroup& call) const {
  std::vector<CallRead> out;
  for (std::int32_t n : call.nodes)
    for (std::size_t i = 0; i < graph_.nodes[at(n)].inputs.size(); ++i)
      if (const GraphValueId id = graph_.nodes[at(n)].inputs[i];
          id >= 0 && (nodes_.call[at(id)] >= 0 || is_input(id) || graph_.initializers.contains(id) || is_step(id)))
        if (nodes_.maker[at(id)] < 0 || nodes_.group[at(nodes_.maker[at(id)])] != nodes_.group[at(n)])
          out.push_back({at(n), i, id});
  return out;
}

std::vector<GraphValueId> CallReads::parameters_of(const std::vector<std::int32_t>& calls) const {
  std::vector<GraphValueId> out;
  for (const std::int32_t k : calls)
    for (const CallRead& r : of(program_.groups[at(k)]))
      if (graph_.initializers.contains(r.id)) out.push_back(r.id);
  return out;
}

bool CallReads::is_step(GraphValueId id) const {
  const std::int32_t by = nodes_.maker[at(id)];
  if (by < 0 || nodes_.call[at(id)] >= 0 || program_.groups[at(nodes_.group[at(by)])].name < 0) return false;
  const GraphNode& node = graph_.nodes[at(by)];
  return node.inputs.size() == 1 && node.outputs.size() == 1 && node.inputs[0] >= 0 &&
         (nodes_.call[at(node.inputs[0])] >= 0 || is_input(node.inputs[0]));
}

bool CallReads::lies_turned(std::int32_t call) const {
  for (std::size_t steps = 0; call >= 0 && steps < program_.groups.size(); ++steps) {
    const FxGroup& group = program_.groups[at(call)];
    if (is_turned(group.text.target)) return true;
    if (group.text.target.find("aten.view.") == std::string_view::npos) return false;
    const auto reads = of(group);
    call = reads.empty() ? -1 : nodes_.call[at(reads[0].id)];
  }
  return false;
}

bool CallReads::do_nothing(const std::vector<std::int32_t>& calls) const {
  return std::ranges::all_of(calls, [&](std::int32_t k) {
    const FxGroup& group = program_.groups[at(k)];
    return may_do_nothing(op_of_name(group.text.name)) && !converts(graph_, group) && !gives_item(group);
  });
}

void CallReads::put_in_order(std::vector<std::int32_t>& calls) const {
  std::ranges::sort(calls, {}, [&](std::int32_t k) { return program_.groups[at(k)].nodes.back(); });
}

std::vector<std::int32_t> CallReads::within(std::int32_t call, std::string_view module) const {
  constexpr std::size_t most = 4096;
  std::vector<std::int32_t> out{call};
  std::unordered_set<std::int32_t> seen{call};
  for (std::size_t i = 0; i < out.size() && out.size() < most; ++i)
    for (const CallRead& r : of(program_.groups[at(out[i])])) {
      const std::int32_t from = nodes_.call[at(r.id)];
      if (from < 0 || seen.contains(from)) continue;
      const FxGroup& group = program_.groups[at(from)];
      if (!gives_one(group) || program_.is_list[at(group.name)] ||
          !is_within(module_of_node(graph_.nodes[at(group.nodes.back())]), module))
        continue;
      seen.insert(from);
      out.push_back(from);
    }
  return out;
}

}  // namespace memplan::onnx_format
