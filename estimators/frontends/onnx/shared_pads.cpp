#include "estimators/frontends/onnx/shared_pads.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

namespace {

using Sizes = std::vector<std::int64_t>;

/// Of a Pad node as a convolution has them: the spatial dimensions alone. Empty where it pads others, or by more than
/// the file tells.
Sizes spatial_pads(const Graph& g, const GraphNode& pad) {
  if (pad.inputs.size() < 2) return {};
  const auto given = g.initializers.find(pad.inputs[1]);
  if (given == g.initializers.end() || (pad.inputs.size() > 3 && pad.inputs[3] >= 0)) return {};
  const Sizes& all = given->second.integers;
  const std::size_t rank = all.size() / 2;
  if (rank < 3 || all[0] != 0 || all[1] != 0 || all[rank] != 0 || all[rank + 1] != 0) return {};
  Sizes out(all.begin() + 2, all.begin() + static_cast<std::ptrdiff_t>(rank));
  out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(rank) + 2, all.end());
  return out;
}

}  // namespace

std::optional<Graph> share_pads(const Graph& graph, const FxProgram&) {
  std::map<std::pair<GraphValueId, Sizes>, GraphValueId> padded;
  std::optional<Graph> out;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (node.op_type == "Pad" && !node.inputs.empty() && !node.outputs.empty()) {
      if (Sizes pads = spatial_pads(graph, node); !pads.empty())
        padded.emplace(std::pair{node.inputs[0], std::move(pads)}, node.outputs[0]);
      continue;
    }
    if (node.op_type != "Conv" || node.inputs.empty() || !has_fused_pad(node.metadata)) continue;
    const auto pads = node.attributes.find("pads");
    const auto* own = pads == node.attributes.end() ? nullptr : std::get_if<Sizes>(&pads->second);
    const auto found = own ? padded.find({node.inputs[0], *own}) : padded.end();
    if (found == padded.end()) continue;
    if (!out) out = graph;
    out->nodes[i].inputs[0] = found->second;
    out->nodes[i].attributes["pads"] = Sizes(own->size(), 0);
  }
  return out;
}

}  // namespace memplan::onnx_format
