#include "estimators/frontends/onnx/folded.h"

#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

std::vector<std::string_view> folded_from(const Graph& graph, GraphValueId id) {
  constexpr const char* key = "pkg.onnxscript.optimizer.folded_from";
  std::string_view text = note_at(graph.values[static_cast<std::size_t>(id)].metadata, key);
  if (const auto stored = graph.initializers.find(id); text.empty() && stored != graph.initializers.end())
    text = note_at(stored->second.metadata, key);
  return parse_python_strings(text);
}

}  // namespace memplan::onnx_format
