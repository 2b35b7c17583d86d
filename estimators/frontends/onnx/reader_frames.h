// The frame of a step that the program ran twice and the file has once.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Gives a node the reader's lines, where it has any.
void take_lines(GraphNode& node, const GraphNode& reader);

/// Puts a node into the innermost of the reader's frames whose line has this text.
void stand_in_line(GraphNode& node, const GraphNode& reader, std::string_view text);

class ReaderFrames {
 public:
  /// `maker`: by value, the node that makes it, -1 for none. All three outlive this.
  ReaderFrames(const Graph& graph, const FxProgram& program, const std::vector<std::int32_t>& maker)
      : graph_(graph), program_(program), maker_(maker) {}

  /// Puts a copy of the graph's node `n` into the module that `reader` is in. One of the same class runs the same line.
  /// One around the node's module has the step in a line of its own, as `mask.to(x.dtype)` in each layer and once more
  /// around them, unless the node rests on what its module stores: then that module was called once more. The same is
  /// true of modules of other classes where the copied calls, `chain`, are not all that the node's module does: a
  /// helper is called in both. One of a region without gradients, of which the file has no frames, stands in the
  /// innermost of the reader's whose line calls its op. False elsewhere, and of PyTorch's modules.
  bool move_to_reader(GraphNode& copy, const GraphNode& reader, std::size_t n, const std::vector<std::int32_t>& chain);

 private:
  bool has_others(std::string_view module, const std::vector<std::int32_t>& chain);

  const Graph& graph_;
  const FxProgram& program_;
  const std::vector<std::int32_t>& maker_;
  std::unordered_map<std::string_view, std::size_t> calls_;  ///< by module; none before they are asked for
};

}  // namespace memplan::onnx_format
