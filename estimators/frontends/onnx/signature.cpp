#include "estimators/frontends/onnx/signature.h"

#include "estimators/frontends/onnx/metadata.h"
#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

namespace {

std::string_view quoted_after(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = at + key.size() + 1;
  if (begin > line.size()) return {};
  const std::size_t end = line.find(line[begin - 1], begin);
  return end == std::string_view::npos ? std::string_view{} : line.substr(begin, end - begin);
}

}  // namespace

Signature parse_signature(std::string_view text) {
  Signature out;
  std::vector<SignatureLine>* section = nullptr;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find("# inputs") == 0) section = &out.inputs;
    if (line.find("# outputs") == 0) section = &out.outputs;
    const std::size_t colon = line.find(": ");
    if (!section || colon == std::string_view::npos || line[0] == '#') continue;
    SignatureLine entry;
    entry.name = line.substr(0, colon);
    const std::string_view rest = line.substr(colon + 2);
    entry.kind = rest.substr(0, rest.find(' '));
    entry.target = quoted_after(rest, "target=");
    entry.persistent = rest.find("persistent=False") == std::string_view::npos;
    section->push_back(entry);
  }
  return out;
}

Signature signature_of(const Graph& graph) {
  return parse_signature(note_at(graph.metadata, "pkg.torch.export.ExportedProgram.graph_signature"));
}

GraphValue value_with_sizes(const Graph& graph, GraphValueId id) {
  GraphValue value = graph.values[static_cast<std::size_t>(id)];
  const auto stored = graph.initializers.find(id);
  if (stored == graph.initializers.end()) return value;
  value.dtype = stored->second.dtype;
  value.shape = fixed_dims(stored->second.sizes);
  return value;
}

GraphValueId add_stored(Graph& graph, const SignatureLine& line, DType dtype, std::vector<std::int64_t> sizes) {
  GraphValue value;
  value.name = line.target;
  value.dtype = dtype;
  value.shape = fixed_dims(sizes);
  graph.values.push_back(std::move(value));
  const auto id = static_cast<GraphValueId>(graph.values.size() - 1);
  StoredTensor t;
  t.name = line.target;
  t.dtype = dtype;
  t.sizes = std::move(sizes);
  t.metadata = {{input_kind_key, std::string(line.kind)}, {original_name_key, std::string(line.name)}};
  graph.initializers.emplace(id, std::move(t));
  return id;
}

}  // namespace memplan::onnx_format
