#include "estimators/frontends/onnx/reader_frames.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/graph/exporter_notes.h"

namespace memplan::onnx_format {

namespace {

/// Where a node stands, outermost first: modules and their classes, with the node itself behind them.
struct Place {
  std::vector<std::string_view> modules, kinds;
  bool told() const { return modules.size() > 1 && modules.size() == kinds.size(); }
  std::string_view module() const { return modules[modules.size() - 2]; }
  std::string_view kind() const { return kinds[kinds.size() - 2]; }
};

Place place_of(const GraphNode& node) {
  return {parse_python_strings(note_at(node.metadata, scopes_key)),
          parse_python_strings(note_at(node.metadata, classes_key))};
}

/// The node reads a tensor that its module stores, or what other nodes of the module made of one.
bool rests_on_stored(const Graph& graph, const std::vector<std::int32_t>& maker, std::size_t n,
                     std::string_view module) {
  std::vector<std::size_t> waiting{n};
  std::vector<bool> seen(graph.nodes.size(), false);
  while (!waiting.empty()) {
    const std::size_t at = waiting.back();
    waiting.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    for (const GraphValueId id : graph.nodes[at].inputs) {
      if (id < 0) continue;
      const auto value = static_cast<std::size_t>(id);
      if (graph.initializers.contains(id) && is_within(graph.values[value].name, module)) return true;
      if (maker[value] >= 0 && module_of_node(graph.nodes[static_cast<std::size_t>(maker[value])]) == module)
        waiting.push_back(static_cast<std::size_t>(maker[value]));
    }
  }
  return false;
}

std::string_view own_line(const GraphNode& node) { return last_frame(note_at(node.metadata, stack_trace_key)); }

/// Whether the text calls a function of that name, "cat(": as itself or as a method.
bool calls_function(std::string_view text, std::string_view call) {
  for (auto at = text.find(call); at != text.npos; at = text.find(call, at + 1))
    if (at > 0 && (text[at - 1] == '.' || text[at - 1] == ' ' || text[at - 1] == '(')) return true;
  return false;
}

/// The list with another last member, as the exporter prints it.
std::string printed(std::vector<std::string_view> names, std::string_view last) {
  names.back() = last;
  return fmt::format("['{}']", fmt::join(names, "', '"));
}

/// Gives the node that place in place of its own.
void stand_in(GraphNode& node, const Place& place) {
  const Place mine = place_of(node);  // views of what is written below
  const std::string modules = printed(place.modules, mine.modules.back()),
                    kinds = printed(place.kinds, mine.kinds.back());
  node.metadata[scopes_key] = modules;
  node.metadata[classes_key] = kinds;
}

/// Puts the node into the innermost of the reader's frames that is so; false where none is.
template <class IsSo>
bool stand_in_frame(GraphNode& node, const GraphNode& reader, const IsSo& is_so) {
  const Place its = place_of(reader);
  const std::string_view trace = note_at(reader.metadata, stack_trace_key);
  if (!place_of(node).told() || !its.told() || is_of_region(reader.metadata)) return false;
  for (std::size_t k = its.modules.size() - 1; k-- > 0;) {
    if (!is_so(frame_of(trace, k))) continue;
    Place place = its;
    place.modules.resize(k + 2);
    place.kinds.resize(k + 2);
    stand_in(node, place);
    node.metadata[stack_trace_key] = std::string(trace.substr(0, frame_at(trace, k + 1)));
    return true;
  }
  return false;
}

/// Whose line calls the node's op, `self.backbone(torch.cat(x))`.
bool stand_where_called(GraphNode& copy, const GraphNode& reader) {
  const Place mine = place_of(copy);
  if (!mine.told()) return false;
  const std::string call = fmt::format("{}(", op_of_name(mine.modules.back()));
  return stand_in_frame(copy, reader, [&](std::string_view frame) { return calls_function(frame, call); });
}

}  // namespace

void take_lines(GraphNode& node, const GraphNode& reader) {
  const auto trace = reader.metadata.find(stack_trace_key);
  if (trace != reader.metadata.end()) node.metadata[stack_trace_key] = trace->second;
}

void stand_in_line(GraphNode& node, const GraphNode& reader, std::string_view text) {
  stand_in_frame(node, reader, [&](std::string_view frame) { return frame.find(text) != frame.npos; });
}

/// Whether the module does more than `chain`.
bool ReaderFrames::has_others(std::string_view module, const std::vector<std::int32_t>& chain) {
  const auto module_of = [&](const FxGroup& group) {
    return module_of_node(graph_.nodes[static_cast<std::size_t>(group.nodes.back())]);
  };
  if (calls_.empty())
    for (const FxGroup& group : program_.groups)
      if (group.name >= 0) ++calls_[module_of(group)];
  const auto all = calls_.find(module);
  if (all == calls_.end() || all->second > chain.size()) return all != calls_.end();
  const auto copied = std::ranges::count_if(
      chain, [&](std::int32_t k) { return module_of(program_.groups[static_cast<std::size_t>(k)]) == module; });
  return all->second > static_cast<std::size_t>(copied);
}

bool ReaderFrames::move_to_reader(GraphNode& copy, const GraphNode& reader, std::size_t n,
                                  const std::vector<std::int32_t>& chain) {
  if (is_of_region(copy.metadata)) return stand_where_called(copy, reader);
  const Place mine = place_of(copy), its = place_of(reader);
  if (!mine.told() || !its.told() || mine.module() == its.module() || mine.kind().starts_with("torch.")) return false;
  const bool twin =
      mine.kind() == its.kind() && mine.modules.size() == its.modules.size() && own_line(copy) == own_line(reader);
  const bool around = is_within(mine.module(), its.module());
  const bool beside = mine.kind() != its.kind() && !around && !is_within(its.module(), mine.module()) &&
                      has_others(mine.module(), chain);
  if (!twin && ((!around && !beside) || rests_on_stored(graph_, maker_, n, mine.module()))) return false;
  if (twin)
    lead_with(copy, reader, mine.modules.size() - 2);
  else
    take_lines(copy, reader);
  stand_in(copy, its);
  return true;
}

}  // namespace memplan::onnx_format
