#include "estimators/frontends/onnx/folded.h"

#include <utility>

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

const char* elementwise_op(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> ops[] = {
      {"add", "aten::add.Tensor"}, {"sub", "aten::sub.Tensor"}, {"mul", "aten::mul.Tensor"},
      {"div", "aten::div.Tensor"}, {"exp", "aten::exp"},        {"neg", "aten::neg"},
      {"tanh", "aten::tanh"},      {"sigmoid", "aten::sigmoid"}};
  const auto end = name.find_last_not_of("0123456789");
  if (end != name.npos && end + 1 < name.size() && name[end] == '_') name = name.substr(0, end);
  for (const auto& [stem, op] : ops)
    if (name == stem) return op;
  return nullptr;
}

}  // namespace memplan::onnx_format
