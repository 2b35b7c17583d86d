// The FX nodes of a graph, in program order, before they become calls.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/graph/exporter_notes.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Nodes with one FX text, or one node without (then `text.name` is empty).
struct FxGroup {
  FxText text;                      ///< names in it are indices into FxProgram::names
  std::vector<std::int32_t> nodes;  ///< of the graph, in order
  std::int32_t name = -1;           ///< index of its own name
};

struct FxProgram {
  std::vector<std::string_view> names;
  std::vector<FxGroup> groups;
  std::vector<bool> is_list;  ///< by name: some operator.getitem reads an element of it
  std::int32_t find(std::string_view name) const {
    const auto it = index.find(name);
    return it == index.end() ? -1 : it->second;
  }
  std::unordered_map<std::string_view, std::int32_t> index;
};

/// Which group each node stands in, which node makes each value, and which call has it as its first result; -1: none.
struct GroupedNodes {
  GroupedNodes(const Graph& graph, const FxProgram& program);
  std::vector<std::int32_t> group;  ///< by node
  std::vector<std::int32_t> maker;  ///< by value
  std::vector<std::int32_t> call;   ///< by value: a group with a text
};

/// Whether nodes of the graph carry the exporter's text.
bool has_fx_text(const Graph& graph);

/// The views point into the graph's metadata.
FxProgram read_fx_program(const Graph& graph);

/// Whether every name that the exporter's text mentions is still made by some node. An optimizer removes and merges
/// nodes, and then the text alone no longer tells the program.
bool is_complete_fx(const Graph& graph, const FxProgram& program);

/// What a name of the text stands for: a value of the graph, or a number.
using ValuesOfNames = std::unordered_map<std::string_view, GraphValueId>;

ValuesOfNames values_of_names(const Graph& g, const FxProgram& program);

}  // namespace memplan::onnx_format
