// Calls that one line of Python makes again and again: in a module called twice, in modules of one class.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

class AlikeCalls {
 public:
  /// Both are read as long as this is used.
  AlikeCalls(const Graph& graph, const FxProgram& program) : graph_(graph), program_(program) {}

  /// `[x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]`: another call of the reader's line takes its part of the
  /// slice `by` by name, so that the reader's own is no slice of everything, which an optimizer would take out. Both
  /// have gradients of their own.
  bool part_slice(std::int32_t by, const FxGroup& reader);

  /// "noise = torch.empty(…)" of a module with `noise.bernoulli_(p)`, where the reader is the same line of another one:
  /// it makes that itself.
  bool is_read_alike(std::int32_t by, const FxGroup& reader);
  bool in_one_module(std::int32_t call, std::int32_t other) const { return module_of(call) == module_of(other); }

  /// A call of another module, and the one that a module of the reader's class makes itself in the place of it.
  using Made = std::unordered_map<std::int32_t, std::int32_t>;
  /// What `reader` names, by a name that is gone, is what `by` made in a module around it; a module of the reader's
  /// class makes it itself: `by`, and what was merged before it. `diff = a - b` of the first block was merged with the
  /// model's own, that of the second was not. Empty where there is no such module.
  Made made_elsewhere(const FxGroup& reader, std::string_view name, std::int32_t by);

  /// `made` is "x.new_zeros(sizes)", of which the file has another module's, merged with the reader's own: the name of
  /// that x, and of the reader's, which it reads where calls like it read the other. Empty where none tells.
  std::pair<std::string, std::string> made_like(const FxGroup& made, const FxGroup& reader);

  /// `x = torch.cat(x, 1)` in the first of several blocks, whose list holds one tensor: the node gets the place that
  /// such an op has in a block with another number, where its result is read by a call like `reader`. False where none
  /// has one.
  bool stand_like_sibling(GraphNode& node, const FxGroup& reader, std::string_view op);

 private:
  void know();
  /// Calls of the reader's op whose first argument is what `made` makes.
  std::vector<const FxGroup*> readers_like(const FxGroup& made, const FxGroup& reader);
  /// Of each value that the call's text names: the call that makes it, -1 where none does.
  std::vector<std::int32_t> makers(const FxGroup& call) const;
  std::string_view module_of(std::int32_t call) const;
  void pair(std::int32_t mine, std::int32_t other, std::string_view here, Made& out) const;

  const Graph& graph_;
  const FxProgram& program_;
  bool known_ = false;
  std::vector<std::int32_t> group_of_name_;
  std::unordered_map<std::int32_t, std::vector<const FxGroup*>> readers_;  ///< by the name of their first argument
  std::map<std::pair<std::string_view, std::string_view>, std::vector<const FxGroup*>> by_line_;  ///< target, line
};

/// Whether a node's innermost line has the sign of such an op, "*" of "mul", that is not the node's own.
bool has_free_sign(const GraphNode& node, std::string_view op);
/// `out = self.conv(x) + 0` leaves no line: a sum with a number is of the module that reads it, where that one called
/// the module whose result it takes and whose own line has no such sign.
bool is_of_caller(const GraphNode& maker, const GraphNode& reader, std::string_view op);

/// A call that comes again stands in the reader's module, at the place where `other`, of a module of its class, makes
/// it.
void stand_as(GraphNode& node, const GraphNode& reader, const GraphNode& other);

}  // namespace memplan::onnx_format
