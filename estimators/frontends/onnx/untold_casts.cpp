#include "estimators/frontends/onnx/untold_casts.h"

#include "estimators/frontends/onnx/changed_graph.h"

namespace memplan::onnx_format {

namespace {

bool is_untold(const GraphNode& n) {
  return n.op_type == "Cast" && !n.metadata.contains(fx_node_key) && n.inputs.size() == 1 && n.inputs[0] >= 0 &&
         n.outputs.size() == 1 && n.outputs[0] >= 0;
}

}  // namespace

std::optional<Graph> tell_casts(const Graph& graph, const FxProgram& program) {
  ChangedGraph g(graph);
  std::optional<GroupedNodes> nodes;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& cast = graph.nodes[i];
    if (!is_untold(cast) || program.find(graph.values[at(cast.outputs[0])].name) < 0) continue;
    if (!nodes) nodes.emplace(graph, program);
    const std::int32_t maker = nodes->maker[at(cast.inputs[0])];
    if (maker < 0) continue;
    const FxGroup& call = program.groups[at(nodes->group[at(maker)])];
    if (call.name >= 0 && call.nodes.back() == maker && call.text.name == graph.values[at(cast.outputs[0])].name)
      g.write().nodes[i].metadata = graph.nodes[at(maker)].metadata;
  }
  return g.take();
}

}  // namespace memplan::onnx_format
