#include "cli/answer/node_stats.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/unwrap.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/onnxruntime/rewritten.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/ort/optimize.h"
#include "estimators/setup/field.h"
#include "estimators/setup/runtimes.h"

namespace memplan::cli {

bool node_stats_wanted(const Options& options) {
  return options.format_name == node_stats_format ||
         std::any_of(options.exports.begin(), options.exports.end(),
                     [](const Export& e) { return e.format == node_stats_format; });
}

std::vector<ort::NodeStats> node_stats_of(const Options& options, const Device& device) {
  if (!runs_nodes(options.setup.runtime))
    fail(ErrorKind::usage, "costs of nodes are read by ONNX Runtime, and this is an estimate of PyTorch",
         std::string(node_stats_format), "add " + setting(Field::runtime, "ort"));
  Model model = unwrap(load_model(options.argument));
  if (!ort::saved_by_onnxruntime(model.domains)) {
    Rewritten asked;
    if (options.onnxruntime != "none")
      asked = rewritten_by_onnxruntime(
          model, [&] { return unwrap(slim_onnx(options.argument)); }, options.onnxruntime, RewriteLevel::basic);
    if (!asked.model)
      fail(ErrorKind::usage,
           asked.complaint.empty() ? "the names of a plain file's nodes change before ONNX Runtime places them"
                                   : asked.complaint,
           std::string(node_stats_format),
           "run pip install onnxruntime (the package for CPUs is enough), so that memplan can ask for them, or give a "
           "file that a session saved (optimized_model_filepath)");
    model = open_fixed(std::move(*asked.model));
  }
  const Tape tape = unwrap(tape_of(model, options.setup));
  return ort::node_stats(*tape.graph, options.setup, device, tape.reading);
}

}  // namespace memplan::cli
