#include "estimators/frontends/recording/attached.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "estimators/base/base64.h"
#include "estimators/base/error.h"
#include "estimators/base/hash.h"
#include "estimators/frontends/recording/reader.h"
#include "estimators/frontends/torch_export/program.h"

namespace memplan::recording {

namespace {

constexpr std::string_view version = "1 ";
constexpr std::size_t mark_digits = 16;

/// Changes when ops, weights or inputs do; what tools leave as it is when they save a file again.
std::string mark_of(const Model& model) {
  std::map<std::string, std::int64_t, std::less<>> ops;
  const Graph& graph = model.graphs.front();
  for (const GraphNode& node : graph.nodes) ++ops[node.op_type];
  if (model.exported)
    for (const torch_export::Node& node : model.exported->graphs.front().nodes) ++ops[node.target];
  std::map<std::string, std::string, std::less<>> weights;
  for (const auto& [id, t] : graph.initializers) {
    std::string& text = weights[t.name];
    text = name_of(t.dtype);
    for (const std::int64_t size : t.sizes) text += fmt::format(",{}", size);
  }
  StableHash hash;
  for (const auto& [op, count] : ops) hash.add(op), hash.add(std::to_string(count));
  for (const auto& [name, text] : weights) hash.add(name), hash.add(text);
  for (const GraphValueId id : graph.inputs) hash.add(graph.values[static_cast<std::size_t>(id)].name);
  return fmt::format("{:016x}", hash.value());
}

Model read_attached(const Model& graph, std::string_view text) {
  const std::string where = graph.path + ": its recording";
  if (static_cast<std::int64_t>(text.size()) > most_attached)
    fail_input(fmt::format("it is longer than {} MiB", most_attached >> 20), where);
  if (!text.starts_with(version) || text.size() < version.size() + mark_digits + 1)
    fail_input("it is of an unknown form", where);
  if (text.substr(version.size(), mark_digits) != mark_of(graph))
    fail_input("the graph was changed after it was recorded", where);
  const auto bytes = from_base64(text.substr(version.size() + mark_digits + 1));
  if (!bytes) fail_input("it is damaged", where);
  return read_recording(torch_export::Archive(*bytes, where), where);
}

}  // namespace

std::string attached_text(const Model& graph, std::string_view recording) {
  return fmt::format("{}{} {}", version, mark_of(graph), to_base64(recording));
}

Model with_attached(Model graph, std::string_view text) {
  const Result<Model> read = catching([&] { return read_attached(graph, text); });
  if (!read) {
    graph.warnings.push_back(
        fmt::format("the recording in the file is not used: {}; attach it again (memplan attach)", read.error().what));
    return graph;
  }
  Model model = *read;
  auto recording = std::make_shared<Recording>(*model.recorded);
  model.path = graph.path;
  model.format = fmt::format("{}, with a recording of PyTorch {}", graph.format, recording->torch);
  model.producer = graph.producer;
  model.file_bytes = graph.file_bytes;
  recording->plain = std::make_shared<const Model>(std::move(graph));
  model.recorded = std::move(recording);
  return model;
}

}  // namespace memplan::recording
