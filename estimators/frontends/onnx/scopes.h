// Module scopes of nodes, from the exporter's metadata, and the lines of Python that called them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// Follows the nodes in program order and numbers the module calls that they are in. A module call ends when a node
/// outside of it comes, or when its caller stands at another line.
class ScopeTracker {
 public:
  explicit ScopeTracker(Tape& tape) : tape_(tape) {}

  /// The scope of a node with the exporter's metadata, made when it is new; sets `source` to the node's own line.
  /// Nodes without metadata stay in the scope of the node before.
  std::int32_t enter(const GraphNode& node, std::string& source);

  /// The same from the module stack itself: paths and classes of the modules around a node and the lines of its stack
  /// trace, outermost first.
  template <class Text>
  std::int32_t enter(const std::vector<Text>& paths, const std::vector<Text>& classes,
                     const std::vector<std::string>& lines, std::string& source);

  /// The scope of the node before; -1 at the start.
  std::int32_t current() const { return stack_.empty() ? -1 : stack_.back(); }

  /// The application of an autograd.Function that the node before stands in, counted from 0; -1: in none.
  std::int32_t function() const { return function_; }

  /// The region without gradients or without autocast that the node before stands in, counted from 0; -1: in none.
  std::int32_t region() const { return region_; }

  /// "mul" where the node before stands in a region and its line is `torch.ops.aten.mul_.Tensor(x, 0.9)`; else empty.
  const std::string& written() const { return written_; }

  /// Regions that have no gradients, by number: a line of theirs writes to `out` or into a parameter, which autograd
  /// does not allow.
  const std::set<std::int32_t>& without_gradients() const { return without_gradients_; }

 private:
  /// `application`: the line that applies the function that the node stands in, or null.
  template <class Text>
  std::int32_t open(const std::vector<Text>& paths, const std::vector<Text>& classes,
                    const std::vector<std::string>& lines, const std::string* application, std::string& source);
  /// `line`: the one that applies the function that a node stands in, or null.
  void follow_functions(const std::string* line, std::int32_t scope);
  /// Whether the node stands in a region.
  bool follow_regions(const std::vector<std::string>& lines);
  Tape& tape_;
  std::vector<std::int32_t> stack_;
  std::map<std::string, std::int32_t> calls_;  ///< of each path so far
  std::int32_t function_ = -1, functions_ = 0, function_scope_ = -1;
  std::string application_;  ///< the line that applies the function
  std::int32_t region_ = -1, regions_ = 0;
  std::set<std::int32_t> without_gradients_;
  std::string written_;
  std::string graph_of_region_;  ///< "<eval_with_key>.42"
  std::unordered_map<std::string_view, std::vector<std::string>>
      lines_;  ///< of the traces so far, which lie in the graph
};

/// "torchvision/models/resnet.py:92 out = self.conv1(x)" for each frame of a stack trace, outermost first: what
/// comes before "site-packages/", or all but the last two parts of the path, is left out. Frames of functions called
/// `forward` alone, where there are such: torch.export notes those alone, but in its strict mode it notes all frames,
/// and one of its own.
std::vector<std::string> stack_lines(std::string_view trace);

/// Takes frames of torch/utils/checkpoint.py out of a stack: they are no module's. Returns whether there were any.
bool without_checkpoint_frames(std::vector<std::string>& lines);

}  // namespace memplan::onnx_format
