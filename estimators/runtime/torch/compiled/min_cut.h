// The minimum cut between a source and a sink.
#pragma once

#include <cstdint>
#include <vector>

namespace memplan::compiled {

struct FlowEdge {
  std::int32_t from = 0, to = 0;
  std::int64_t capacity = 0;
};

/// More than any sum of the capacities that a graph may have.
constexpr std::int64_t unlimited = std::int64_t{1} << 61;

struct MinCut {
  /// By vertex: it can still reach the sink. Of all minimum cuts this is the one nearest to the sink, which is the one
  /// that networkx.minimum_cut returns.
  std::vector<bool> reaches_sink;
  bool bounded = true;  ///< false: a path without a limit leads from the source to the sink
};

/// Vertices are 0 … vertices - 1.
MinCut min_cut(std::int32_t vertices, const std::vector<FlowEdge>& edges, std::int32_t source, std::int32_t sink);

}  // namespace memplan::compiled
