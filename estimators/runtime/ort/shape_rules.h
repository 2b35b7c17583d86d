// ONNX's shape inference of single nodes, with names for open dimensions.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "estimators/runtime/ort/shapes.h"

namespace memplan::ort {

struct RuleInput {
  const GraphNode& node;
  const Graph& graph;
  const std::vector<KnownShape>& shapes;
  std::int64_t opset;

  bool has(std::size_t i) const { return i < node.inputs.size() && node.inputs[i] >= 0; }
  const KnownShape& in(std::size_t i) const;
  /// Contents of an input that is stored in the file.
  std::optional<std::vector<std::int64_t>> stored(std::size_t i) const;
  std::int64_t integer(const char* name, std::int64_t fallback) const;
  std::optional<std::vector<std::int64_t>> list(const char* name) const;
  /// An attribute of older opsets that became an input.
  std::optional<std::vector<std::int64_t>> list(const char* name, std::size_t input) const;
};

struct ShapeRule {
  std::string_view op;
  void (*infer)(const RuleInput&, std::vector<KnownShape>& outputs);
};
std::span<const ShapeRule> view_rules();

/// Counted from the end where it is negative; none out of range.
std::optional<std::size_t> axis_in(std::int64_t axis, std::size_t rank);
KnownShape broadcast(const std::vector<KnownShape>& shapes);

/// Fills what inference tells of the outputs; nothing for ops without a rule.
void infer_shapes(const RuleInput& in, std::vector<KnownShape>& outputs);

}  // namespace memplan::ort
