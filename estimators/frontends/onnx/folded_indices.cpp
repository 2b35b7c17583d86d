#include "estimators/frontends/onnx/folded_indices.h"

#include <algorithm>
#include <cstddef>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/folded.h"

namespace memplan::onnx_format {

namespace {

/// The node of the group that makes a value; null: none.
const GraphNode* maker_in(const Graph& g, const FxGroup& group, GraphValueId id) {
  for (const std::int32_t n : group.nodes)
    if (const GraphNode& node = g.nodes[static_cast<std::size_t>(n)]; node.outputs == std::vector{id}) return &node;
  return nullptr;
}

/// The values that are stacked to the indices which the group's last step reads; a lone one has a dimension of one
/// more.
std::vector<GraphValueId> stacked_of(const Graph& g, const FxGroup& group) {
  for (const std::int32_t n : group.nodes) {
    const GraphNode& step = g.nodes[static_cast<std::size_t>(n)];
    if ((step.op_type != "GatherND" && step.op_type != "ScatterND") || step.inputs.size() < 2) continue;
    const GraphNode* made = maker_in(g, group, step.inputs[1]);
    if (made && made->op_type == "Concat") return made->inputs;
    if (const auto lone = g.initializers.find(step.inputs[1]);
        lone != g.initializers.end() && !lone->second.sizes.empty() && lone->second.sizes.back() == 1)
      return {lone->first};
  }
  return {};
}

/// What the file has of an index before it is broadcast to the others and stacked.
GraphValueId before_stacking(const Graph& g, const FxGroup& group, GraphValueId id) {
  constexpr int steps = 2;  // Expand and Unsqueeze
  for (int i = 0; i < steps; ++i)
    if (const GraphNode* made = maker_in(g, group, id);
        made && !made->inputs.empty() && (made->op_type == "Expand" || made->op_type == "Unsqueeze"))
      id = made->inputs[0];
  return id;
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
  const std::string_view target = group.text.target;
  if ((target != "torch.ops.aten.index.Tensor" && target != "torch.ops.aten.index_put.default") ||
      group.text.args.size() < 2)
    return out;
  const auto* list = std::get_if<Arg::List>(&group.text.args[1].value);
  const std::vector<GraphValueId> stacked = list ? stacked_of(g, group) : std::vector<GraphValueId>{};
  std::size_t k = 0;
  for (const Arg& index : stacked.empty() ? Arg::List{} : *list) {
    const auto* id = std::get_if<ValueId>(&index.value);
    if (!id) continue;  // all of that dimension
    const std::string_view name = program.names[static_cast<std::size_t>(id->index)];
    if (k < stacked.size() && std::ranges::find(unknown, name) != unknown.end()) {
      const GraphValueId before = before_stacking(g, group, stacked[k]);
      const auto stored = g.initializers.find(before);
      if (stored != g.initializers.end() && !stored->second.sizes.empty()) {
        Sizes sizes = stored->second.sizes;
        if (before == stacked[k]) {
          sizes.pop_back();
          sizes = before_broadcast(std::move(sizes), k, name);
        }
        out.push_back({name, before, std::move(sizes)});
      }
    }
    ++k;
  }
  return k == stacked.size() ? out : std::vector<FoldedIndex>{};
}

Call made_index(const Sizes& sizes) {
  Call call;
  call.op = "aten::empty.memory_format";
  call.args = {list_of(sizes)};
  call.kwargs = {{"dtype", {DType::int64}}};
  return call;
}

}  // namespace memplan::onnx_format
