#include "estimators/transforms/lowered.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>

#include "estimators/base/unwrap.h"
#include "estimators/graph/exporter_notes.h"
#include "estimators/pipeline.h"
#include "estimators/transforms/value_shapes.h"

namespace memplan {

namespace {

bool has_lines(const GraphNode& n) { return n.metadata.count(fx_node_key) > 0; }

constexpr int tries = 32;  ///< calls whose lines alone are dropped before all are

std::string_view line_of(const GraphNode& n) {
  const auto it = n.metadata.find(fx_node_key);
  return it == n.metadata.end() ? std::string_view{} : std::string_view(it->second);
}

Model without_lines(Model model) {
  for (GraphNode& n : model.graphs.front().nodes) n.metadata.erase(fx_node_key);
  return model;
}

/// Without the line of the call that a failure names by one of its nodes; none where it names no such node.
std::optional<Model> without_line_of(const Model& model, std::string_view node) {
  const auto& nodes = model.graphs.front().nodes;
  const auto at = std::ranges::find_if(nodes, [&](const GraphNode& n) { return n.name == node && has_lines(n); });
  if (node.empty() || at == nodes.end()) return std::nullopt;
  const std::string line(line_of(*at));
  Model out = model;
  for (GraphNode& n : out.graphs.front().nodes)
    if (line_of(n) == line) n.metadata.erase(fx_node_key);
  return out;
}

/// The results that the lines name: "%add_2 : [num_users=1] = …".
std::unordered_set<std::string> names_of_lines(const Graph& g) {
  std::unordered_set<std::string> names;
  for (const GraphNode& n : g.nodes)
    if (const auto it = n.metadata.find(fx_node_key); it != n.metadata.end() && it->second.starts_with('%'))
      names.insert(it->second.substr(1, it->second.find_first_of(" :") - 1));
  return names;
}

/// What the calls make that no line names: PyTorch's own ops may have it in registers, or keep as much of their own.
Bytes between_lines(const Tape& tape, const Graph& g) {
  const auto named = names_of_lines(g);
  Bytes all;
  for (const Call& c : tape.calls)
    for (std::size_t i = 0; i < c.outputs.size() && i < c.known_shapes.size(); ++i) {
      const auto& [dtype, sizes] = c.known_shapes[i];
      if (!c.outputs[i].valid() || named.count(tape.values[static_cast<std::size_t>(c.outputs[i].index)].name))
        continue;
      all += bytes_of(dtype, sizes);
    }
  return all;
}

}  // namespace

Tape lowered(const Model& model, const DimBinding& dims, const TrainingSetup& setup) {
  const auto lower_and_resize = [&](const Model& m) {
    return catching([&] { return unwrap(resize(unwrap(lower(m, dims, setup)), m, dims)); });
  };
  const auto runs = [](const Result<Tape>& tape) {
    return catching([&] {
      if (!tape) throw Failure(tape.error());
      return value_shapes(*tape, TrainingSetup{}, Device{}).size();
    });
  };
  Result<Tape> tape = lower_and_resize(model);
  const bool told = !model.exported && !model.recorded && std::ranges::any_of(model.graphs.front().nodes, has_lines);
  if (!told || (tape && tape->graph)) return unwrap(std::move(tape));
  // What was asked for cannot be: the nodes alone would not know it better.
  if (!tape && tape.error().kind == ErrorKind::usage) return unwrap(std::move(tape));
  auto ran = runs(tape);
  if (ran) return unwrap(std::move(tape));
  const auto why = ran.error();
  std::optional<Model> fewer = without_line_of(model, why.where);
  Result<Tape> plain = tape;
  for (int i = 0; i < tries && fewer && !ran; ++i) {
    plain = lower_and_resize(*fewer);
    ran = runs(plain);
    if (!ran) fewer = without_line_of(*fewer, ran.error().where);
  }
  const std::string_view counted = ran ? "the nodes of these calls" : "the nodes alone";
  if (!ran) plain = lower_and_resize(without_lines(model));
  if (!plain) return unwrap(std::move(tape));
  const Bytes off = between_lines(*plain, model.graphs.front());
  note(plain->notes,
       {"MP024",
        fmt::format("the lines of the program that stand at the file's nodes do not fit them ({}{}{}); {} are counted",
                    why.what, why.where.empty() ? "" : ": ", why.where, counted),
        Evidence::assumed,
        About::op,
        {},
        {},
        -1,
        1,
        Effect{off, off}});
  return unwrap(std::move(plain));
}

}  // namespace memplan
