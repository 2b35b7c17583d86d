// The graph of a file that carries its program's lines, with what the exporter's optimizer merged, folded and shared
// put back. It does not depend on sizes or the setup, so all bindings of a model share it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

struct Prepared {
  std::optional<Graph> graph;         ///< none: nothing had to be put back
  FxProgram program;                  ///< of that graph, or of the file's
  bool by_text = false;               ///< the lines tell all that the nodes do
  std::vector<std::string> left_out;  ///< left_out_names() of the program
};

/// Of the model's main graph, which must have lines (has_fx_text).
std::shared_ptr<const Prepared> prepared(const Model& model);

}  // namespace memplan::onnx_format
