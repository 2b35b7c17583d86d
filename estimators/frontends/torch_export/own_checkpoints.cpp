#include "estimators/frontends/torch_export/own_checkpoints.h"

#include <algorithm>
#include <string_view>

namespace memplan::torch_export {

namespace {

constexpr std::string_view empty_op = "torch.ops.aten.empty.memory_format";

/// checkpoint() makes a tensor of no elements that wants a gradient, before it saves its arguments.
bool makes_nothing(const Node& node) {
  if (node.target != empty_op || node.inputs.empty()) return false;
  const auto* sizes = std::get_if<Arg::List>(&node.inputs[0].value.value);
  const auto* size = sizes && sizes->size() == 1 ? std::get_if<std::int64_t>(&sizes->front().value) : nullptr;
  return size && *size == 0;
}

bool called_from(const std::vector<std::string>& lines, const std::vector<std::string>& caller) {
  return lines.size() >= caller.size() && std::equal(caller.begin(), caller.end(), lines.begin());
}

/// The module that the caller's line calls and that a node stands in; empty: the node is the line's own.
std::string_view callee(const Node& node, std::size_t depth) {
  return node.paths.size() > depth ? std::string_view(node.paths[depth]) : std::string_view();
}

struct Stretch {
  std::size_t mark, end;  ///< nodes (mark, end)
};

class Stretches {
 public:
  explicit Stretches(const Subgraph& graph) : nodes_(graph.nodes) {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (marks_checkpoint(nodes_[i])) found_.push_back({i, end_of(i)});
    for (std::size_t i = 0; i < found_.size();) {
      std::size_t next = i + 1;  // behind the stretches of this line
      while (next < found_.size() && nodes_[found_[next].mark].lines == nodes_[found_[i].mark].lines) ++next;
      if (line_has(found_[i].mark, "checkpoint_sequential(")) leave_last_segment(i, next - 1);
      if (next - i > 1) end_as_before(found_[next - 2], found_[next - 1]);
      i = next;
    }
  }

  const std::vector<Stretch>& found() const { return found_; }

 private:
  bool line_has(std::size_t mark, std::string_view text) const {
    const auto& lines = nodes_[mark].lines;
    return !lines.empty() && lines.back().find(text) != std::string::npos;
  }

  std::size_t end_of(std::size_t mark) const {
    const Node& m = nodes_[mark];
    // `checkpoint(f, x) if … else f(x)` in a loop: another turn may not be checkpointed.
    const bool one_call = line_has(mark, " else ");
    std::string_view called;
    std::size_t i = mark + 1;
    for (; i < nodes_.size(); ++i) {
      const Node& n = nodes_[i];
      if (marks_checkpoint(n) && n.lines == m.lines) break;
      if (n.lines.empty() || makes_nothing(n)) continue;
      if (!called_from(n.lines, m.lines)) break;
      const std::string_view now = callee(n, m.paths.size());
      if (one_call && !called.empty() && now != called) break;
      called = now;
    }
    return i;
  }

  /// checkpoint_sequential(functions, segments, x) runs its last segment as it is. Every segment before it has as many
  /// of the functions as `functions / segments`.
  void leave_last_segment(std::size_t first, std::size_t last) {
    const std::size_t depth = nodes_[found_[first].mark].paths.size();
    std::vector<std::size_t> begins;  // of the functions
    std::string_view before;
    for (std::size_t i = found_[first].mark + 1; i < found_[last].end; ++i) {
      const std::string_view now = callee(nodes_[i], depth);
      if (!now.empty() && now != before) begins.push_back(i);
      if (!now.empty()) before = now;
    }
    const std::size_t segments = last - first + 2, checkpointed = begins.size() / segments * (segments - 1);
    if (checkpointed > 0) found_[last].end = begins[checkpointed];
  }

  /// A loop's last turn does what the turn before it did; what follows in the loop's line is not checkpointed.
  void end_as_before(const Stretch& before, Stretch& last) const {
    std::size_t i = last.mark + 1;
    for (std::size_t k = before.mark + 1; k < before.end; ++k) {
      if (makes_nothing(nodes_[k])) continue;
      if (i >= last.end || nodes_[i].target != nodes_[k].target) return;
      ++i;
    }
    last.end = i;
  }

  const std::vector<Node>& nodes_;
  std::vector<Stretch> found_;
};

}  // namespace

bool marks_checkpoint(const Node& node) { return node.in_checkpoint && node.target == empty_op; }

std::vector<std::int32_t> checkpointed_nodes(const Subgraph& graph, std::int32_t& applications) {
  std::vector<std::int32_t> numbers(graph.nodes.size(), -1);
  const Stretches stretches(graph);
  for (const Stretch& s : stretches.found()) {
    for (std::size_t i = s.mark + 1; i < s.end; ++i)
      if (!makes_nothing(graph.nodes[i])) numbers[i] = applications;
    ++applications;
  }
  return numbers;
}

Fact reentrant_checkpoint(Bytes results) {
  // It runs its stretch to the end, with the results and their gradients beside it until all gradients are there.
  Fact fact{{}, "checkpoints with use_reentrant=True count as those without", Evidence::assumed, About::checkpointing};
  fact.off = Effect{results, results * 4};
  return fact;
}

bool is_reentrant_checkpoint(const Subgraph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& n) { return n.in_checkpoint && !marks_checkpoint(n); });
}

}  // namespace memplan::torch_export
