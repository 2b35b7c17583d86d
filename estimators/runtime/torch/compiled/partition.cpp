#include "estimators/runtime/torch/compiled/partition.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <tuple>

#include "estimators/runtime/torch/aten/cost.h"
#include "estimators/runtime/torch/compiled/knapsack.h"
#include "estimators/runtime/torch/compiled/min_cut.h"

namespace memplan::compiled {

namespace {

constexpr std::int32_t never = 1'000'000'000;  ///< distance of a node that leads to nothing in the backward pass

std::size_t at(NodeId id) { return static_cast<std::size_t>(id); }

/// MinCutOptions, as far as they are switched
struct Bans {
  bool fusion = true;          ///< what could not be fused: used far apart, in long chains, in memory anyway
  bool all_but_listed = true;  ///< what is not on the list; else only what takes long
};

/// What solve_min_cut returns.
struct Kept {
  std::vector<bool> nodes;
  bool bounded = true;
};

class Partitioner {
 public:
  explicit Partitioner(const JointGraph& graph) : g_(graph), readers_(readers_of(graph)), count_(graph.nodes.size()) {}

  Partition run(double budget) {
    classify();
    measure_distances();
    return extract(choose(budget));
  }

 private:
  bool view(NodeId id) const { return g_.at(id).op->kind == Kind::view; }
  bool fusible(NodeId id) const {
    const JointNode& n = g_.at(id);
    return n.op->recomputable && n.op->kind != Kind::input;
  }
  /// cat can take pointwise ops in, though nothing takes in cat.
  bool fusible(NodeId a, NodeId b) const { return g_.at(b).op->name == "cat" || (fusible(a) && fusible(b)); }

  void classify() {
    tangents_.assign(count_, false);
    for (const NodeId t : g_.tangents) tangents_[at(t)] = true;
    for (std::size_t i = 0; i < count_; ++i)
      if (tangents_[i])
        for (const NodeId r : readers_[i]) tangents_[at(r)] = true;
    needed_backward_ = tangents_;
    for (const NodeId id : g_.gradients)
      if (id >= 0) needed_backward_[at(id)] = true;
    forward_.assign(count_, false);
    for (const NodeId id : g_.primals) forward_[at(id)] = true;
    for (const NodeId id : g_.outputs) forward_[at(id)] = true;
    for (const NodeId id : g_.effects) forward_[at(id)] = !tangents_[at(id)];
    for (std::size_t i = count_; i-- > 0;)
      if (forward_[i])
        for (const NodeId in : g_.nodes[i].inputs) forward_[at(in)] = true;
    constant_.assign(count_, false);
    for (const NodeId id : g_.constants) constant_[at(id)] = true;
    returned_.assign(count_, false);
    for (const NodeId id : g_.outputs) returned_[at(id)] = true;
    for (const NodeId id : g_.gradients)
      if (id >= 0) returned_[at(id)] = true;
    order_.assign(count_, -1);
    std::int32_t n = 0;
    for (std::size_t i = 0; i < count_; ++i)
      if (forward_[i]) order_[i] = n++;
  }

  void measure_distances() {
    distance_.assign(count_, never);
    for (std::size_t i = count_; i-- > 0;) {
      if (!forward_[i]) {
        distance_[i] = 0;
        continue;
      }
      for (const NodeId r : readers_[i]) distance_[i] = std::min(distance_[i], distance_[at(r)] + 1);
    }
  }

  void ban(NodeId id) {
    if (!view(id) && !freed_[at(id)]) banned_[at(id)] = true;
  }

  /// solve_min_cut
  Kept solve(const Bans& bans) {
    banned_.assign(count_, false);
    for (const NodeId id : g_.primals) ban(id);
    for (NodeId id = 0; at(id) < count_; ++id)
      if (forward_[at(id)] && costs_too_much(id, bans)) ban(id);
    if (bans.fusion) {
      ban_used_far_apart();
      ban_long_chains();
    }
    const MinCut cut = cut_graph();
    return {kept_nodes(cut), cut.bounded};
  }

  /// should_ban_recomputation
  bool costs_too_much(NodeId id, const Bans& bans) const {
    const JointNode& n = g_.at(id);
    if (n.op->kind == Kind::input || n.op->kind == Kind::piece) return false;
    if (bans.all_but_listed ? !n.op->recomputable : n.op->intensive) return true;
    if (bans.fusion && materialized_in_backward(id)) return true;
    std::int64_t read = 0;
    if (!n.listed)
      for (const NodeId in : n.inputs) read += g_.at(in).bytes;
    return n.bytes * 4 < read;
  }

  bool materialized_in_backward(NodeId id) const {
    if (view(id)) return false;
    std::vector<NodeId> open{id};
    std::set<NodeId> seen{id};
    while (!open.empty()) {
      const NodeId current = open.back();
      open.pop_back();
      if (returned_[at(current)]) return true;
      for (const NodeId r : readers_[at(current)]) {
        if (!forward_[at(r)] && !fusible(current, r)) return true;
        if (view(r) && seen.insert(r).second) open.push_back(r);
      }
    }
    return false;
  }

  /// Where the first op stands that cannot be fused with those before it, among all that `start` leads to.
  std::int32_t first_unfusible(const std::vector<NodeId>& start, std::int32_t last) const {
    std::set<std::tuple<std::int32_t, bool, NodeId>> open;
    for (const NodeId id : start) open.insert({order_[at(id)], true, id});
    while (!open.empty()) {
      const auto [order, fused, id] = *open.begin();
      open.erase(open.begin());
      if (!fused) return order;
      for (const NodeId r : readers_[at(id)])
        if (forward_[at(r)] && order_[at(r)] <= last) open.insert({order_[at(r)], fusible(id, r), r});
    }
    return last;
  }

  void ban_used_far_apart() {
    for (NodeId id = 0; at(id) < count_; ++id) {
      if (!forward_[at(id)]) continue;
      std::vector<NodeId> users;
      std::int32_t last = -1;
      for (const NodeId r : readers_[at(id)])
        if (forward_[at(r)]) {
          users.push_back(r);
          last = std::max(last, order_[at(r)]);
        }
      if (users.size() < 2) continue;  // the only one is not behind itself
      const std::int32_t unfusible = first_unfusible(users, last);
      for (const NodeId r : users)
        if (order_[at(r)] > unfusible && fusible(id, r)) ban(r);
    }
  }

  void ban_long_chains() {
    std::vector<bool> visited(count_, false);
    for (NodeId start = 0; at(start) < count_; ++start) {
      if (!forward_[at(start)]) continue;
      std::priority_queue<std::pair<std::int32_t, NodeId>, std::vector<std::pair<std::int32_t, NodeId>>, std::greater<>>
          open;
      open.push({order_[at(start)], start});
      while (!open.empty()) {
        const NodeId current = open.top().second;
        open.pop();
        if (visited[at(current)]) continue;
        visited[at(current)] = true;
        if (order_[at(current)] > order_[at(start)] + 100 && open.empty()) {
          ban(current);
          break;
        }
        for (const NodeId r : readers_[at(current)])
          if (forward_[at(r)] && fusible(current, r) && !banned_[at(r)]) open.push({order_[at(r)], r});
      }
    }
  }

  /// get_node_weight: nearer to the backward pass is better, and what would not be in memory anyway costs twice.
  std::int64_t weight(NodeId id) const {
    const JointNode& n = g_.at(id);
    if (n.several) return unlimited;
    if (constant_[at(id)]) return 0;
    const double grown = static_cast<double>(n.bytes) * std::pow(1.1, std::clamp(distance_[at(id)], 1, 100));
    const auto bytes = static_cast<std::int64_t>(std::min(grown, 1e15));
    const bool in_memory =
        n.op->kind == Kind::input || returned_[at(id)] ||
        std::any_of(readers_[at(id)].begin(), readers_[at(id)].end(), [&](NodeId r) { return !fusible(id, r); });
    return in_memory ? bytes : 2 * bytes;
  }

  MinCut cut_graph() const {
    const auto n = static_cast<std::int32_t>(count_);
    const std::int32_t source = 2 * n, sink = 2 * n + 1;
    std::vector<FlowEdge> edges;
    for (NodeId id = 0; id < n; ++id) {
      const std::int32_t in = 2 * id, out = in + 1;
      if (banned_[at(id)]) edges.push_back({source, in, unlimited});
      if (tangents_[at(id)]) {
        edges.push_back({in, sink, unlimited});
        continue;
      }
      if (needed_backward_[at(id)]) edges.push_back({out, sink, unlimited});
      edges.push_back({in, out, weight(id)});
      for (const NodeId r : readers_[at(id)]) edges.push_back({out, 2 * r, unlimited});
    }
    return min_cut(2 * n + 2, edges, source, sink);
  }

  std::vector<bool> kept_nodes(const MinCut& cut) const {
    std::vector<bool> kept(count_, false);
    for (std::size_t i = 0; i < count_; ++i) {
      if (cut.bounded)
        kept[i] = !cut.reaches_sink[2 * i] && cut.reaches_sink[2 * i + 1];
      else
        kept[i] = forward_[i] && !g_.nodes[i].several &&
                  std::any_of(readers_[i].begin(), readers_[i].end(), [&](NodeId r) { return !forward_[at(r)]; });
    }
    return kept;
  }

  double bytes_of(const std::vector<bool>& kept) const {
    double bytes = 0;
    for (std::size_t i = 0; i < count_; ++i)
      if (kept[i]) bytes += static_cast<double>(g_.nodes[i].bytes);
    return bytes;
  }

  /// As convolution_op writes it (rows/layers.cpp).
  static bool transposed(const JointNode& n) { return n.constants.rfind("transposed ", 0) == 0; }

  /// What estimate_runtime counts: operations of products and attention, and 1 for all else.
  double cost_of(const JointNode& n) const {
    const bool attention = n.op->name.rfind("_scaled_dot_product", 0) == 0;
    const std::string op = attention ? "aten::scaled_dot_product_attention" : "aten::" + std::string(n.op->name);
    OpCall call{op, {}, {{n.sizes.vector(), n.dtype}}, {}, transposed(n), false};
    for (const NodeId in : n.inputs) call.inputs.push_back({g_.at(in).sizes.vector(), g_.at(in).dtype});
    return std::max(1.0, flops_of(call).forward);
  }

  /// Banned values that may be computed again all the same, largest first.
  std::vector<NodeId> open_to_knapsack() const {
    std::set<std::int32_t> inputs;
    for (const NodeId id : g_.primals) inputs.insert(g_.at(id).storage);
    std::vector<NodeId> open;
    for (NodeId id = 0; at(id) < count_; ++id)
      if (banned_[at(id)] && distance_[at(id)] < never && (g_.at(id).several || !inputs.count(g_.at(id).storage)))
        open.push_back(id);
    std::stable_sort(open.begin(), open.end(), [&](NodeId a, NodeId b) { return g_.at(a).bytes > g_.at(b).bytes; });
    return open;
  }

  /// choose_saved_values_set
  Kept choose(double budget) {
    freed_.assign(count_, false);
    Kept inputs{std::vector<bool>(count_, false), true};
    for (const NodeId id : g_.primals) inputs.nodes[at(id)] = true;
    if (budget <= 0) return inputs;
    Kept fastest = solve({});
    if (budget >= 1 || !fastest.bounded) return fastest;
    const double least = bytes_of(inputs.nodes), span = bytes_of(fastest.nodes) - least;
    if (span <= 0) return fastest;
    const auto within = [&](const Kept& k) { return (bytes_of(k.nodes) - least) / span < budget; };
    const Bans no_fusion{false, true}, none{false, false};
    if (Kept k = solve(no_fusion); within(k)) return k;
    if (Kept k = solve(none); within(k)) return k;
    const std::vector<NodeId> open = open_to_knapsack();
    if (open.empty()) return inputs;
    std::vector<double> memory, costs;
    for (const NodeId id : open) {
      memory.push_back(static_cast<double>(g_.at(id).bytes) / 1e9 / (span / 1e9));
      costs.push_back(cost_of(g_.at(id)));
    }
    const std::vector<bool> kept = worth_keeping(memory, costs, budget);
    for (std::size_t i = 0; i < open.size(); ++i) freed_[at(open[i])] = !kept[i];
    return solve(none);
  }

  /// _extract_fwd_bwd_modules
  Partition extract(const Kept& kept) const {
    const std::vector<bool>& cut = kept.nodes;
    Partition p;
    p.cut = kept.bounded;
    p.backward.assign(count_, false);
    std::vector<bool> reached(count_, false);
    for (const NodeId id : g_.gradients)
      if (id >= 0) reached[at(id)] = true;
    for (std::size_t i = count_; i-- > 0;) {
      if (!reached[i] || cut[i]) continue;
      p.backward[i] = g_.nodes[i].op->kind != Kind::input;
      for (const NodeId in : g_.nodes[i].inputs) reached[at(in)] = true;
    }
    p.forward = forward_;
    for (NodeId id = 0; at(id) < count_; ++id)
      if (cut[at(id)] && reached[at(id)]) p.saved.push_back(id);
    for (std::size_t i = 0; i < count_; ++i)
      if (cut[i] && reached[i]) p.forward[i] = true;
    for (std::size_t i = count_; i-- > 0;)
      if (p.forward[i])
        for (const NodeId in : g_.nodes[i].inputs) p.forward[at(in)] = true;
    return p;
  }

  const JointGraph& g_;
  const std::vector<std::vector<NodeId>> readers_;
  const std::size_t count_;
  std::vector<bool> tangents_, needed_backward_, forward_, banned_;
  std::vector<bool> freed_;                ///< never banned: the knapsack has no room for it
  std::vector<bool> constant_, returned_;  ///< parameters and buffers; results of the graph
  std::vector<std::int32_t> order_, distance_;
};

}  // namespace

Partition partition(const JointGraph& graph, double budget) { return Partitioner(graph).run(budget); }

}  // namespace memplan::compiled
