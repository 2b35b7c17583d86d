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

std::shared_ptr<const Arranged> arrange(const BoundGraph& bound, const OrtProfile& profile) {
  auto out = std::make_shared<Arranged>();
  Optimized made = optimized(loadable(bound, profile), profile);
  out->late = mark_late_forms(made.graph, bound.opset, profile);
  out->may_change = std::move(made.may_change);
  out->rearranged = made.rearranged;
  out->placed = in_order(place(std::move(made.graph)));
  out->shapes = known_shapes(out->placed.graph, bound.opset);
  return out;
}

}  // namespace

Prepared::Prepared(const BoundGraph& bound, const OrtProfile& profile)
    : arranged(bound.arranged->get(std::string(profile.version), [&] { return arrange(bound, profile); })),
      inferred(arranged.placed.graph, bound.symbols, bound.opset) {
  for (std::size_t i = 0; i < arranged.placed.graph.values.size(); ++i)
    types.push_back(inferred[static_cast<GraphValueId>(i)].dtype.value_or(DType::float32));
}

const Prepared& prepared(const BoundGraph& bound, const OrtProfile& profile) {
  return bound.prepared.get(std::string(profile.version),
                            [&] { return std::make_shared<const Prepared>(bound, profile); });
}

const std::vector<Scratch>& scratch_of_nodes(const Prepared& p, const ScratchContext& c) {
  const Placed& placed = p.arranged.placed;
  const std::string key = fmt::format("{} {} {} {} {} {}", static_cast<int>(c.setup.conv_search),
                                      static_cast<int>(c.reading), static_cast<const void*>(c.cudnn), c.device.sm(),
                                      c.device.multiprocessors, c.device.threads_per_multiprocessor);
  return p.scratch.get(key, [&] {
    auto out = std::make_shared<std::vector<Scratch>>();
    for (const GraphNode& node : placed.graph.nodes)
      out->push_back(placed.node_on_cpu[out->size()] ? Scratch{}
                                                     : scratch_of({node, p.inferred, p.inferred.opset()}, c));
    return out;
  });
}

}  // namespace memplan::ort
