// Recovery of PyTorch ops from the nodes that an exporter decomposed them into. One pattern, one function, one file of
// patterns/. A pattern is tried at the last of its nodes and looks backwards.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/frontends/onnx/emit.h"
#include "estimators/frontends/onnx/inferred.h"

namespace memplan::onnx_format {

/// The graph as patterns see it.
class View {
 public:
  /// `needed`: nodes that make a tensor which something reads; `reads[i]`: what node i reads as tensors.
  View(const InferredValues& inferred, const std::vector<bool>& needed,
       const std::vector<std::vector<GraphValueId>>& reads);

  const GraphNode& node(std::int32_t i) const { return graph.nodes[static_cast<std::size_t>(i)]; }
  /// The node that makes a value when it is of this op type; else -1.
  std::int32_t made_by(GraphValueId id, std::string_view op) const;
  std::int32_t producer(GraphValueId id) const { return id < 0 ? -1 : producer_[static_cast<std::size_t>(id)]; }
  /// Likewise, and nothing else reads the value.
  std::int32_t only_made_by(GraphValueId id, std::string_view op) const;
  bool read_once(GraphValueId id) const { return id >= 0 && readers_of(id).size() == 1; }
  /// Nodes that read the value as a tensor, -1 for the end of the graph.
  std::span<const std::int32_t> readers_of(GraphValueId id) const {
    const auto i = static_cast<std::size_t>(id);
    return {readers_.data() + first_[i], readers_.data() + first_[i + 1]};
  }
  bool stored(GraphValueId id) const { return id >= 0 && graph.initializers.count(id) > 0; }
  std::optional<double> number(GraphValueId id) const;
  bool is_number(GraphValueId id, double value) const;
  const std::optional<Sizes>& sizes(GraphValueId id) const { return inferred[id].sizes; }
  GraphValueId input(std::int32_t node, std::size_t i) const;
  GraphValueId output(std::int32_t node) const {
    return this->node(node).outputs.empty() ? -1 : this->node(node).outputs[0];
  }
  At at(std::int32_t node) const { return At{this->node(node), inferred, inferred.opset()}; }
  /// Skips casts that change nothing.
  GraphValueId through_casts(GraphValueId id) const;

  const InferredValues& inferred;
  const Graph& graph;

 private:
  std::vector<std::int32_t> producer_;  ///< by value
  std::vector<std::uint32_t> first_;    ///< by value: where its readers begin
  std::vector<std::int32_t> readers_;
};

/// What a pattern found.
struct Found {
  std::vector<std::int32_t> nodes;  ///< covered, the last one included
  std::vector<GraphValueId> reads;  ///< values that the calls read as tensors
  std::vector<GraphValueId> makes;  ///< outputs of other nodes than the last one that the calls make
  std::string op, from;             ///< for the report; empty where nothing was recovered
  std::function<void(Emit&)> emit;  ///< appends the calls and binds the outputs of the last node
};

using Pattern = std::optional<Found> (*)(const View&, std::int32_t node);

/// The pattern whose last node is `node`, the larger before the smaller.
std::optional<Found> match(const View& view, std::int32_t node);

// patterns/<name>.cpp
std::optional<Found> match_linear(const View&, std::int32_t node);
std::optional<Found> match_layer_norm(const View&, std::int32_t node);
std::optional<Found> match_group_norm(const View&, std::int32_t node);
std::optional<Found> match_gelu(const View&, std::int32_t node);
std::optional<Found> match_gated(const View&, std::int32_t node);
std::optional<Found> match_rsqrt(const View&, std::int32_t node);
std::optional<Found> match_attention(const View&, std::int32_t node);
std::optional<Found> match_in_projection(const View&, std::int32_t node);
std::optional<Found> match_unbind(const View&, std::int32_t node);
std::optional<Found> match_cross_entropy(const View&, std::int32_t node);
std::optional<Found> match_recurrent(const View&, std::int32_t node);
std::optional<Found> match_like(const View&, std::int32_t node);
std::optional<Found> match_folded_batch_norm(const View&, std::int32_t node);
std::optional<Found> match_own_statistics(const View&, std::int32_t node);

}  // namespace memplan::onnx_format
