#include "estimators/runtime/ort/shapes.h"

#include <algorithm>

#include "estimators/runtime/ort/shape_rules.h"

namespace memplan::ort {

namespace {

bool known(const Dim& d) { return !d.open() || !d.symbol.empty(); }

/// What inference says goes into what the file states: a number stands over a name, a stated name over an inferred one.
Dim merged(const Dim& stated, const Dim& inferred) {
  if (!inferred.open()) return {inferred.size, {}};
  return known(stated) ? stated : inferred;
}

KnownShape merged(const KnownShape& stated, const KnownShape& inferred) {
  if (!stated) return inferred;
  if (!inferred || stated->size() != inferred->size()) return stated;
  std::vector<Dim> out;
  for (std::size_t i = 0; i < stated->size(); ++i) out.push_back(merged((*stated)[i], (*inferred)[i]));
  return out;
}

KnownShape stated(const GraphValue& v) {
  if (!v.shape) return std::nullopt;
  std::vector<Dim> out = *v.shape;
  for (Dim& d : out)
    if (!d.open()) d.symbol.clear();
  return out;
}

}  // namespace

std::vector<KnownShape> known_shapes(const Graph& graph, std::int64_t opset) {
  std::vector<KnownShape> shapes(graph.values.size());
  for (const GraphValueId id : graph.inputs)
    shapes[static_cast<std::size_t>(id)] = stated(graph.values[static_cast<std::size_t>(id)]);
  for (const auto& [id, tensor] : graph.initializers) {
    std::vector<Dim> dims;
    for (const std::int64_t n : tensor.sizes) dims.push_back({n, {}});
    shapes[static_cast<std::size_t>(id)] = std::move(dims);
  }
  std::vector<KnownShape> outputs;
  for (const GraphNode& node : graph.nodes) {
    outputs.assign(node.outputs.size(), std::nullopt);
    infer_shapes(RuleInput{node, graph, shapes, opset}, outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (const GraphValueId id = node.outputs[i]; id >= 0)
        shapes[static_cast<std::size_t>(id)] = merged(stated(graph.values[static_cast<std::size_t>(id)]), outputs[i]);
  }
  return shapes;
}

bool same_shape(const KnownShape& a, const KnownShape& b) {
  return a && b && std::equal(a->begin(), a->end(), b->begin(), b->end(), [](const Dim& x, const Dim& y) {
           if (!x.open() || !y.open()) return x.size == y.size;
           return !x.symbol.empty() && x.symbol == y.symbol;
         });
}

}  // namespace memplan::ort
