#include "estimators/runtime/ort/prepared.h"

#include <fmt/format.h>

#include <utility>

#include "estimators/runtime/ort/kernels.h"
#include "estimators/runtime/ort/optimize.h"
#include "estimators/setup/field.h"

namespace memplan::ort {

namespace {

/// The graph, where that version loads its file.
const BoundGraph& loadable(const BoundGraph& bound, const OrtProfile& profile) {
  const auto check = [&](const char* what, std::int64_t has, std::int64_t most) {
    if (has > most)
      fail_input(fmt::format("the file has {} {}, and ONNX Runtime {} loads none newer than {}", what, has,
                             profile.version, most),
                 fmt::format("{} {}", what, has),
                 "export it with an older one, or name a newer version with " + setting(Field::ort_version, "X.Y"));
  };
  check("ONNX opset", bound.opset, profile.opset);
  check("IR version", bound.ir, profile.ir);
  return bound;
}

/// Marks nodes whose form the version has no CUDA kernel of; says which ops these are.
std::set<std::string> mark_late_forms(Graph& graph, std::int64_t opset, const OrtProfile& profile) {
  std::set<std::string> ops;
  for (GraphNode& node : graph.nodes) {
    if (!node.domain.empty() && node.domain != "ai.onnx") continue;
    if (!kernel_of(node) || has_form(profile, node.op_type, opset)) continue;
    node.metadata[on_cpu_key] = profile.version;
    ops.insert(node.op_type);
  }
  return ops;
}

Placed placed_of(const BoundGraph& bound, const OrtProfile& profile, Prepared& p) {
  Optimized made = optimized(loadable(bound, profile), profile);
  p.late = mark_late_forms(made.graph, bound.opset, profile);
  p.may_change = std::move(made.may_change);
  p.rearranged = made.rearranged;
  return in_order(place(std::move(made.graph)));
}

}  // namespace

Prepared::Prepared(const BoundGraph& bound, const OrtProfile& profile)
    : placed(placed_of(bound, profile, *this)),
      inferred(placed.graph, bound.symbols, bound.opset),
      shapes(known_shapes(placed.graph, bound.opset)) {
  for (std::size_t i = 0; i < placed.graph.values.size(); ++i)
    types.push_back(inferred[static_cast<GraphValueId>(i)].dtype.value_or(DType::float32));
}

const Prepared& prepared(const BoundGraph& bound, const OrtProfile& profile) {
  return bound.prepared.get(std::string(profile.version),
                            [&] { return std::make_shared<const Prepared>(bound, profile); });
}

}  // namespace memplan::ort
