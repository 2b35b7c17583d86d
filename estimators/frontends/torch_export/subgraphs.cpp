#include "estimators/frontends/torch_export/subgraphs.h"

namespace memplan::torch_export {

double made_bytes(const Subgraph& graph, const ShapeOf& shape_of) {
  double sum = 0;
  for (const Node& n : graph.nodes)
    for (NameId id : n.outputs)
      if (const auto shape = shape_of(id)) {
        double numel = 1;
        for (std::int64_t s : shape->second) numel *= static_cast<double>(s);
        sum += numel * bits_of(shape->first) / 8;
      }
  return sum;
}

std::vector<Arg> flat(const std::vector<Arg>& args) {
  std::vector<Arg> out;
  for (const Arg& a : args)
    if (const auto* list = std::get_if<Arg::List>(&a.value))
      out.insert(out.end(), list->begin(), list->end());
    else
      out.push_back(a);
  return out;
}

}  // namespace memplan::torch_export
