#include "estimators/runtime/torch/compiled/min_cut.h"

#include <algorithm>

namespace memplan::compiled {

namespace {

/// Dinic's algorithm: levels from the source, then blocking flows along them. Without recursion, since paths are as
/// long as the model is deep.
class FlowNetwork {
 public:
  FlowNetwork(std::int32_t vertices, const std::vector<FlowEdge>& edges)
      : first_(static_cast<std::size_t>(vertices) + 1, 0), level_(static_cast<std::size_t>(vertices)) {
    for (const FlowEdge& e : edges) {
      ++first_[index(e.from) + 1];
      ++first_[index(e.to) + 1];
    }
    for (std::size_t v = 1; v < first_.size(); ++v) first_[v] += first_[v - 1];
    arcs_.resize(2 * edges.size());
    std::vector<std::int32_t> at(first_.begin(), first_.end() - 1);
    for (const FlowEdge& e : edges) {
      const std::int32_t forward = at[index(e.from)]++, back = at[index(e.to)]++;
      arcs_[index(forward)] = {e.to, back, e.capacity};
      arcs_[index(back)] = {e.from, forward, 0};
    }
    next_.resize(level_.size());
  }

  MinCut cut(std::int32_t source, std::int32_t sink) {
    MinCut result;
    while (result.bounded && find_levels(source, sink)) {
      std::copy(first_.begin(), first_.end() - 1, next_.begin());
      std::int64_t pushed = 0;
      while (result.bounded && (pushed = push(source, sink)) > 0) result.bounded = pushed < unlimited / 2;
    }
    result.reaches_sink.assign(level_.size(), false);
    std::vector<std::int32_t> open{sink};
    result.reaches_sink[index(sink)] = true;
    while (!open.empty()) {
      const std::int32_t v = open.back();
      open.pop_back();
      for (std::int32_t a = first_[index(v)]; a < first_[index(v) + 1]; ++a) {
        const FlowArc& arc = arcs_[index(a)];
        if (result.reaches_sink[index(arc.to)] || arcs_[index(arc.back)].left == 0) continue;
        result.reaches_sink[index(arc.to)] = true;
        open.push_back(arc.to);
      }
    }
    return result;
  }

 private:
  struct FlowArc {
    std::int32_t to = 0, back = 0;
    std::int64_t left = 0;
  };
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  bool find_levels(std::int32_t source, std::int32_t sink) {
    std::fill(level_.begin(), level_.end(), -1);
    std::vector<std::int32_t> open{source};
    level_[index(source)] = 0;
    for (std::size_t i = 0; i < open.size(); ++i)
      for (std::int32_t a = first_[index(open[i])]; a < first_[index(open[i]) + 1]; ++a) {
        const FlowArc& arc = arcs_[index(a)];
        if (arc.left == 0 || level_[index(arc.to)] >= 0) continue;
        level_[index(arc.to)] = level_[index(open[i])] + 1;
        open.push_back(arc.to);
      }
    return level_[index(sink)] >= 0;
  }

  /// Along one path of the levels; 0 where there is none left.
  std::int64_t push(std::int32_t source, std::int32_t sink) {
    std::vector<std::int32_t> path;
    std::int32_t v = source;
    while (v != sink) {
      std::int32_t& a = next_[index(v)];
      while (a < first_[index(v) + 1] && !leads_on(v, arcs_[index(a)])) ++a;
      if (a < first_[index(v) + 1]) {
        path.push_back(a);
        v = arcs_[index(a)].to;
        continue;
      }
      if (path.empty()) return 0;
      level_[index(v)] = -1;
      v = arcs_[index(arcs_[index(path.back())].back)].to;
      path.pop_back();
    }
    std::int64_t most = unlimited;
    for (const std::int32_t a : path) most = std::min(most, arcs_[index(a)].left);
    for (const std::int32_t a : path) {
      FlowArc& arc = arcs_[index(a)];
      if (arc.left < unlimited) arc.left -= most;
      arcs_[index(arc.back)].left += arcs_[index(arc.back)].left < unlimited ? most : 0;
    }
    return most;
  }
  bool leads_on(std::int32_t v, const FlowArc& arc) const {
    return arc.left > 0 && level_[index(arc.to)] == level_[index(v)] + 1;
  }

  std::vector<std::int32_t> first_, level_, next_;
  std::vector<FlowArc> arcs_;
};

}  // namespace

MinCut min_cut(std::int32_t vertices, const std::vector<FlowEdge>& edges, std::int32_t source, std::int32_t sink) {
  return FlowNetwork(vertices, edges).cut(source, sink);
}

}  // namespace memplan::compiled
