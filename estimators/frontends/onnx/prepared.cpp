#include "estimators/frontends/onnx/prepared.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "estimators/frontends/onnx/joined_losses.h"
#include "estimators/frontends/onnx/lost_calls.h"
#include "estimators/frontends/onnx/part_constants.h"
#include "estimators/frontends/onnx/shared_pads.h"
#include "estimators/frontends/onnx/shared_steps.h"
#include "estimators/frontends/onnx/shared_variance.h"
#include "estimators/frontends/onnx/undo_folding.h"
#include "estimators/frontends/onnx/undo_merging.h"
#include "estimators/frontends/onnx/undo_transposes.h"
#include "estimators/frontends/onnx/untold_casts.h"
#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

namespace {

/// Its line was taken from it (transforms/lowered.h).
bool has_no_line(const GraphNode& n) {
  const auto it = n.metadata.find(fx_node_key);
  return it != n.metadata.end() && it->second.empty();
}

/// In place, since the program's views point into its graph.
void prepare(const Graph& file, Prepared& out) {
  out.program = read_fx_program(file);
  for (auto* undo : {tell_casts, join_losses, undo_folding, undo_transposes, share_pads, part_variances,
                     part_shared_steps, part_constants, undo_merging})
    if (std::optional<Graph> changed = undo(out.graph ? *out.graph : file, out.program)) {
      out.graph = std::move(changed);
      out.program = read_fx_program(*out.graph);
    }
  const Graph& graph = out.graph ? *out.graph : file;
  out.left_out = left_out_names(out.program);
  out.by_text = is_complete_fx(graph, out.program) && std::ranges::none_of(graph.nodes, has_no_line);
}

}  // namespace

std::shared_ptr<const Prepared> prepared(const Model& model) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::shared_ptr<const Prepared>& place = model.shared.prepared;
  if (!place) {
    const auto made = std::make_shared<Prepared>();
    prepare(model.graphs.front(), *made);
    place = made;
  }
  return place;
}

}  // namespace memplan::onnx_format
