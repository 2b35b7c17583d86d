#include "estimators/frontends/onnx/folded_indices.h"

#include <algorithm>
#include <cstddef>

#include "estimators/frontends/onnx/folded.h"

namespace memplan::onnx_format {

namespace {

/// The values that are stacked to what the GatherND reads.
std::vector<GraphValueId> stacked_of(const Graph& g, const FxGroup& group) {
  for (const std::int32_t n : group.nodes) {
    const GraphNode& gather = g.nodes[static_cast<std::size_t>(n)];
    if (gather.op_type != "GatherND" || gather.inputs.size() < 2) continue;
    for (const std::int32_t m : group.nodes) {
      const GraphNode& made = g.nodes[static_cast<std::size_t>(m)];
      if (made.op_type == "Concat" && made.outputs == std::vector{gather.inputs[1]}) return made.inputs;
    }
  }
  return {};
}

/// Of one of several indices that broadcast to a block, the `k`-th: `torch.arange(n)[:, None]` and the like have ones
/// in all dimensions but their own.
Sizes before_broadcast(Sizes sizes, std::size_t k, std::string_view name) {
  if (sizes.size() < 2 || op_of_name(name) == "arange") return {sizes.empty() ? 1 : sizes.back()};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (i != k) sizes[i] = 1;
  return sizes;
}

}  // namespace

std::vector<FoldedIndex> folded_indices(const Graph& g, const FxProgram& program, const FxGroup& group,
                                        const std::vector<std::string_view>& unknown) {
  std::vector<FoldedIndex> out;
  if (group.text.target != "torch.ops.aten.index.Tensor" || group.text.args.size() != 2) return out;
  const auto* list = std::get_if<Arg::List>(&group.text.args[1].value);
  const std::vector<GraphValueId> stacked = list ? stacked_of(g, group) : std::vector<GraphValueId>{};
  std::size_t k = 0;
  for (const Arg& index : stacked.empty() ? Arg::List{} : *list) {
    const auto* id = std::get_if<ValueId>(&index.value);
    if (!id) continue;  // all of that dimension
    const std::string_view name = program.names[static_cast<std::size_t>(id->index)];
    const auto stored = k < stacked.size() ? g.initializers.find(stacked[k]) : g.initializers.end();
    if (std::ranges::find(unknown, name) != unknown.end() && stored != g.initializers.end() &&
        stored->second.sizes.size() > 1) {
      Sizes sizes = stored->second.sizes;
      sizes.pop_back();
      out.push_back({name, stacked[k], before_broadcast(std::move(sizes), k, name)});
    }
    ++k;
  }
  return k == stacked.size() ? out : std::vector<FoldedIndex>{};
}

}  // namespace memplan::onnx_format
