// Parameters that the file has no tensor for, since they were equal to another module's when it was written.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "estimators/frontends/onnx/changed_graph.h"
#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

class LostTwins {
 public:
  /// `signature`: the graph's own.
  LostTwins(const Graph& graph, const Signature& signature);

  /// Whether the module has parameters of the same names as these, and the file has no tensor for one. `reader`: a call
  /// of the module, whose own parameters are there, if under the names of another module that is the same one.
  bool has_own(const std::vector<GraphValueId>& parameters, std::string_view module, const FxProgram& program,
               const FxGroup& reader) const;

  /// The one module beside `module` that has lost parameters of the names of these, and that the reader's lines call:
  /// two norms of one tensor are one call while their weights are equal. Empty where there is none, or several.
  std::string sibling(const std::vector<GraphValueId>& parameters, std::string_view module,
                      std::string_view lines) const;

  /// The node reads the parameters of its module's twin where the file has no tensor for them: `head.head.bn.weight`
  /// and `head.head_dist.bn.weight`. Their names in the exporter's text, by those of the others.
  std::unordered_map<std::string, std::string> read_twins(GraphNode& node, const Parting& apart, ChangedGraph& g);

 private:
  const Graph& graph_;
  std::unordered_map<std::string_view, const SignatureLine*> lines_;  ///< of the signature, by parameter
  std::unordered_map<std::string_view, std::string_view> targets_;    ///< parameters by their names in the text
  std::unordered_set<std::string_view> missing_;
  std::unordered_map<std::string, GraphValueId> twins_;  ///< what is there again
};

}  // namespace memplan::onnx_format
