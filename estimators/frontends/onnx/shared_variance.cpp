#include "estimators/frontends/onnx/shared_variance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/fx_rewrites.h"
#include "estimators/frontends/onnx/insert_nodes.h"
#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

namespace {

/// A variance as the exporter writes it.
struct Variance {
  std::int32_t group = -1;
  std::int32_t mean = -1, sub = -1;  ///< its nodes for the mean, and for the deviations from it
  std::string_view of;               ///< by name
  std::string dims;                  ///< "[1]"
  std::string_view shared;           ///< the call of x.mean() that it shares its mean with; empty: the mean is its own
};

class VarianceParter {
 public:
  VarianceParter(const Graph& g, const FxProgram& program) : old_(g), g_(g), program_(program), nodes_(g, program) {}

  std::optional<Graph> run() {
    std::map<GraphValueId, Variance> variances;  // by their deviations
    for (std::size_t k = 0; k < program_.groups.size(); ++k)
      if (const auto v = variance_at(static_cast<std::int32_t>(k)))
        variances.emplace(old_.nodes[at(v->sub)].outputs[0], *v);
    if (variances.empty()) return std::nullopt;
    for (const auto& [id, v] : variances)
      if (!v.shared.empty()) take_own_mean(v);
    for (std::size_t n = 0; n < old_.nodes.size(); ++n)
      for (std::size_t i = 0; i < old_.nodes[n].inputs.size(); ++i)
        if (const auto it = variances.find(old_.nodes[n].inputs[i]);
            it != variances.end() && nodes_.group[n] != it->second.group)
          part(n, i, it->second);
    if (before_.empty()) return std::nullopt;
    insert_nodes(g_.write().nodes, before_);
    return g_.take();
  }

 private:
  std::optional<Variance> variance_at(std::int32_t k) const {
    const FxGroup& group = program_.groups[at(k)];
    if (group.name < 0 || group.text.target != "torch.ops.prims.var.default") return std::nullopt;
    const auto dims = dims_of(group);
    const auto* x = dims ? std::get_if<ValueId>(&group.text.args[0].value) : nullptr;
    if (!x) return std::nullopt;
    for (std::int32_t n : group.nodes) {
      const GraphNode& sub = old_.nodes[at(n)];
      if (sub.op_type != "Sub" || sub.inputs.size() != 2 || sub.inputs[1] < 0) continue;
      const std::int32_t mean = nodes_.maker[at(sub.inputs[1])];
      if (mean < 0 || old_.nodes[at(mean)].op_type != "ReduceMean" || old_.nodes[at(mean)].inputs.empty() ||
          old_.nodes[at(mean)].inputs[0] != sub.inputs[0])
        continue;
      const std::int32_t of = nodes_.group[at(mean)];
      if (of == k) return Variance{k, mean, n, program_.names[at(x->index)], *dims, {}};
      if (of < 0 || program_.groups[at(of)].name < 0 ||
          program_.groups[at(of)].text.target != "torch.ops.aten.mean.dim")
        continue;
      return Variance{
          k, mean, n, program_.names[at(x->index)], *dims, program_.names[at(program_.groups[at(of)].name)]};
    }
    return std::nullopt;
  }

  /// The program's own mean of the same tensor stands before the variance, and the optimizer kept that one alone.
  void take_own_mean(const Variance& v) {
    const GraphValueId made = copy(at(v.sub), v.mean, fmt::format("{}_of_variance_{}", v.shared, v.sub));
    g_.write().nodes[at(v.sub)].inputs[1] = made;
  }

  /// "[1]" of the text of the variance.
  static std::optional<std::string> dims_of(const FxGroup& group) {
    const auto* list = group.text.args.size() > 1 ? std::get_if<Arg::List>(&group.text.args[1].value) : nullptr;
    if (!list) return std::nullopt;
    std::vector<std::int64_t> dims;
    for (const Arg& a : *list)
      if (const auto* n = std::get_if<std::int64_t>(&a.value)) dims.push_back(*n);
    return dims.size() == list->size() ? std::optional(fmt::format("[{}]", fmt::join(dims, ", "))) : std::nullopt;
  }

  /// The reader's own text says by which name it reads them: `sub_6`, which no node of the file has.
  void part(std::size_t reader, std::size_t input, const Variance& v) {
    const FxGroup& call = program_.groups[at(nodes_.group[reader])];
    if (call.name < 0 || call.nodes.size() != 1) return;
    const std::vector<ValueId> names = tensors_of(call);
    if (names.size() <= input) return;
    const std::string_view name = program_.names[at(names[input].index)];
    if (op_of_name(name) != "sub") return;
    const auto [own, fresh] = own_.try_emplace(std::string(name), -1);
    if (fresh && !v.shared.empty()) {
      const GraphValueId mean = old_.nodes[at(v.mean)].outputs[0];
      own->second = add(reader, v.sub, name, fmt::format("sub.Tensor](args = (%{}, %{})", v.of, v.shared), mean);
    } else if (fresh) {
      const std::string mean = fmt::format("mean_{}", 70'000'000 + own_.size());
      const GraphValueId m =
          add(reader, v.mean, mean, fmt::format("mean.dim](args = (%{}, {}, True)", v.of, v.dims), -1);
      own->second = add(reader, v.sub, name, fmt::format("sub.Tensor](args = (%{}, %{})", v.of, mean), m);
    }
    g_.write().nodes[reader].inputs[input] = own->second;
  }

  /// As a call of the program's own. `second`: what it reads as its second input.
  GraphValueId add(std::size_t reader, std::int32_t of, std::string_view name, const std::string& call,
                   GraphValueId second) {
    const GraphValueId made = copy(reader, of, name);
    GraphNode& node = before_[reader].back();
    if (second >= 0) node.inputs[1] = second;
    node.metadata[fx_node_key] =
        fmt::format("%{} : [num_users=1] = call_function[target=torch.ops.aten.{}, kwargs = {{}})", name, call);
    return made;
  }

  /// The node `of` once more, before the reader and in its line.
  GraphValueId copy(std::size_t reader, std::int32_t of, std::string_view name) {
    GraphNode node = old_.nodes[at(of)];
    GraphValue v = old_.values[at(node.outputs[0])];
    v.name = name;
    g_.write().values.push_back(std::move(v));
    const auto made = static_cast<GraphValueId>(g_.read().values.size() - 1);
    node.name = fmt::format("node_{}", name);
    node.outputs = {made};
    node.metadata = old_.nodes[reader].metadata;
    before_[reader].push_back(std::move(node));
    return made;
  }

  const Graph& old_;
  ChangedGraph g_;
  const FxProgram& program_;
  const GroupedNodes nodes_;
  std::map<std::string, GraphValueId> own_;  ///< names that are gone -> their value
  NodesBefore before_;
};

}  // namespace

std::optional<Graph> part_variances(const Graph& graph, const FxProgram& program) {
  return VarianceParter(graph, program).run();
}

}  // namespace memplan::onnx_format
