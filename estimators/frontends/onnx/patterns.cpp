#include "estimators/frontends/onnx/patterns.h"

#include <cmath>
#include <unordered_map>

namespace memplan::onnx_format {

View::View(const InferredValues& inferred, const std::vector<bool>& needed,
           const std::vector<std::vector<GraphValueId>>& reads)
    : inferred(inferred),
      graph(inferred.graph()),
      producer_(graph.values.size(), -1),
      first_(graph.values.size() + 1, 0) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (GraphValueId id : graph.nodes[i].outputs)
      if (id >= 0) producer_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(i);
  auto each = [&](auto&& use) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (needed[i])
        for (GraphValueId id : reads[i]) use(id, static_cast<std::int32_t>(i));
    for (GraphValueId id : graph.outputs) use(id, -1);
  };
  each([&](GraphValueId id, std::int32_t) { ++first_[static_cast<std::size_t>(id) + 1]; });
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  readers_.resize(first_.back());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  each([&](GraphValueId id, std::int32_t node) { readers_[next[static_cast<std::size_t>(id)]++] = node; });
}

std::int32_t View::made_by(GraphValueId id, std::string_view op) const {
  const std::int32_t p = producer(id);
  return p >= 0 && node(p).op_type == op && node(p).domain.empty() && output(p) == id ? p : -1;
}

std::int32_t View::only_made_by(GraphValueId id, std::string_view op) const {
  return read_once(id) ? made_by(id, op) : -1;
}

std::optional<double> View::number(GraphValueId id) const {
  const Inferred& f = inferred[id];
  return f.is_one_number() ? std::optional(f.contents->number(0)) : std::nullopt;
}

bool View::is_number(GraphValueId id, double value) const {
  const auto n = number(id);
  return n && std::fabs(*n - value) <= 1e-4 * std::max(1.0, std::fabs(value));
}

GraphValueId View::input(std::int32_t node, std::size_t i) const {
  const auto& inputs = this->node(node).inputs;
  return i < inputs.size() ? inputs[i] : -1;
}

GraphValueId View::through_casts(GraphValueId id) const {
  for (int steps = 0; steps < 4; ++steps) {
    std::int32_t cast = made_by(id, "Cast");
    if (cast < 0) cast = made_by(id, "Identity");
    if (cast < 0 || inferred[input(cast, 0)].dtype != inferred[id].dtype) return id;
    id = input(cast, 0);
  }
  return id;
}

std::optional<Found> match(const View& view, std::int32_t node) {
  // By the op type of the last node; the larger pattern first.
  static const std::unordered_map<std::string_view, std::vector<Pattern>> table = {
      {"Add", {match_layer_norm, match_group_norm, match_linear}},
      {"MatMul", {match_attention, match_linear}},
      {"Mul", {match_layer_norm, match_gelu, match_gated, match_group_norm}},
      {"Div", {match_layer_norm, match_gated, match_rsqrt}},
      {"Reciprocal", {match_rsqrt}},
      {"Squeeze", {match_in_projection, match_unbind}},
      {"NegativeLogLikelihoodLoss", {match_cross_entropy}},
      {"Conv", {match_folded_batch_norm}},
      {"BatchNormalization", {match_own_statistics}},
      {"ConstantOfShape", {match_like}},
      {"LSTM", {match_recurrent}},
      {"GRU", {match_recurrent}},
      {"RNN", {match_recurrent}},
  };
  const GraphNode& n = view.node(node);
  if (!n.domain.empty()) return std::nullopt;
  const auto it = table.find(n.op_type);
  if (it == table.end()) return std::nullopt;
  for (Pattern p : it->second)
    if (auto found = p(view, node)) return found;
  return std::nullopt;
}

}  // namespace memplan::onnx_format
