#include "estimators/frontends/torch_export/own_checkpoints.h"

#include <algorithm>
#include <string_view>
#include <utility>

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

bool is_view(std::string_view target) {
  constexpr std::string_view ops = "torch.ops.aten.";
  if (!target.starts_with(ops)) return false;
  const std::string_view op = target.substr(ops.size());
  for (const std::string_view view : {"select.", "slice.", "view.", "unsqueeze.", "squeeze.", "transpose.", "permute.",
                                      "expand.", "detach.", "chunk.", "split", "unbind."})
    if (op.starts_with(view)) return true;
  return false;
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
      if (line_has(found_[i].mark, "checkpoint_sequential("))
        leave_last_segment(i, next - 1);
      else
        end_with_module(i, next);
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

  /// The first module that a stretch's line calls: its class, and the node behind it.
  std::pair<std::string_view, std::size_t> first_call(const Stretch& s) const {
    const std::size_t depth = nodes_[s.mark].paths.size();
    std::string_view called, of_class;
    std::size_t i = s.mark + 1;
    for (; i < s.end; ++i) {
      const Node& n = nodes_[i];
      if (n.lines.empty() || makes_nothing(n)) continue;
      const std::string_view now = callee(n, depth);
      if (now.empty() || (!called.empty() && now != called)) break;
      called = now;
      if (n.classes.size() > depth) of_class = n.classes[depth];
    }
    return {of_class, i};
  }

  /// Between a call and the next mark there are only views: the next call's arguments.
  bool only_views(std::size_t i, std::size_t end) const {
    return std::all_of(nodes_.begin() + static_cast<std::ptrdiff_t>(i),
                       nodes_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Node& n) { return makes_nothing(n) || is_view(n.target); });
  }

  /// Where a helper method checkpoints, all that it does stands in its caller's line. If one of the line's stretches
  /// [first, next) is a call of one module and no more, up to the next mark, then modules of that class are what the
  /// helper checkpoints.
  void end_with_module(std::size_t first, std::size_t next) {
    std::string_view of_class;
    for (std::size_t k = first; k + 1 < next && of_class.empty(); ++k)
      if (const auto [name, end] = first_call(found_[k]);
          found_[k].end == found_[k + 1].mark && only_views(end, found_[k].end))
        of_class = name;
    if (of_class.empty()) return;
    for (std::size_t k = first; k < next; ++k)
      if (const auto [name, end] = first_call(found_[k]); name == of_class) found_[k].end = end;
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
