#include "estimators/frontends/onnx/part_constants.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/signature.h"

namespace memplan::onnx_format {

namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

class ConstantsParter {
 public:
  ConstantsParter(const Graph& graph, const FxProgram& program)
      : old_(graph), g_(graph), program_(program), signature_(signature_of(graph)) {
    for (const SignatureLine& line : signature_.inputs) {
      stored_.insert({line.target, line.name});
      if (line.kind == "PARAMETER") parameters_.insert({line.target, line.name});
    }
  }

  std::optional<Graph> run() {
    const std::vector<bool> known = known_names(old_, program_, signature_);
    for (const FxGroup& group : program_.groups) {
      if (group.name < 0) continue;
      for (const ValueId id : tensors_of(group))
        if (!known[at(id.index)]) look(group, program_.names[at(id.index)]);
    }
    return g_.take();
  }

 private:
  /// The one tensor of that op which the call's nodes read and which its text does not name.
  void look(const FxGroup& group, std::string_view name) {
    GraphValueId found = -1;
    for (const std::int32_t n : group.nodes)
      for (const GraphValueId id : old_.nodes[at(n)].inputs) {
        if (id < 0 || id == found || !is_like(id, name) || is_named(group, id)) continue;
        if (found >= 0) return;
        found = id;
      }
    if (found < 0) return;
    const GraphValueId own = copy_of(found, name);
    for (const std::int32_t n : group.nodes)
      for (GraphValueId& id : g_.write().nodes[at(n)].inputs)
        if (id == found) id = own;
  }

  bool is_like(GraphValueId id, std::string_view name) const {
    const auto it = old_.initializers.find(id);
    if (it == old_.initializers.end() || it->second.sizes.empty() || stored_.contains(it->second.name)) return false;
    // What was worked out of a parameter is one of several parameters that are equal.
    return op_of_name(it->second.name) == op_of_name(name) &&
           std::ranges::none_of(folded_from(old_, id),
                                [&](std::string_view from) { return parameters_.contains(from); });
  }

  bool is_named(const FxGroup& group, GraphValueId id) const {
    for (const ValueId v : tensors_of(group))
      if (program_.names[at(v.index)] == old_.initializers.at(id).name) return true;
    return false;
  }

  GraphValueId copy_of(GraphValueId id, std::string_view name) {
    const auto [it, fresh] = own_.try_emplace(name, -1);
    if (!fresh) return it->second;
    Graph& g = g_.write();
    GraphValue value = old_.values[at(id)];
    StoredTensor tensor = old_.initializers.at(id);
    value.name = tensor.name = name;
    g.values.push_back(std::move(value));
    it->second = static_cast<GraphValueId>(g.values.size() - 1);
    g.initializers.emplace(it->second, std::move(tensor));
    return it->second;
  }

  const Graph& old_;
  ChangedGraph g_;
  const FxProgram& program_;
  const Signature signature_;
  std::unordered_set<std::string_view> stored_, parameters_;  ///< parameters and buffers, by both of their names
  std::map<std::string_view, GraphValueId> own_;              ///< by name
};

}  // namespace

std::optional<Graph> part_constants(const Graph& graph, const FxProgram& program) {
  return ConstantsParter(graph, program).run();
}

}  // namespace memplan::onnx_format
