#include "estimators/runtime/torch/compiled/plan.h"

#include <algorithm>
#include <set>

namespace memplan::compiled {

namespace {

std::size_t slot(std::int32_t i) { return static_cast<std::size_t>(i); }

class PassPlanner {
 public:
  /// `handed`: nodes whose values the pass owns when it begins; `results`: those that it returns. `stays`: handed nodes
  /// that somebody else keeps.
  PassPlanner(const JointGraph& graph, std::vector<NodeId> order, std::vector<NodeId> handed,
              const std::vector<NodeId>& results, Fusion fusion)
      : g_(graph), order_(std::move(order)), handed_(std::move(handed)), fusion_(fusion) {
    const std::size_t n = g_.nodes.size();
    in_memory_.assign(n, false);
    returned_.assign(n, false);
    inside_.assign(n, false);
    pass_.of_node.assign(n, -1);
    for (const NodeId id : order_) inside_[slot(id)] = true;
    for (const NodeId id : results)
      if (id >= 0) returned_[slot(base(id))] = true;
  }

  Pass run() {
    choose_buffers();
    find_last_reads();
    emit();
    return std::move(pass_);
  }

 private:
  bool lies_in_input(NodeId id) const {
    const JointNode& n = g_.at(id);
    if (n.inputs.empty()) return false;
    return n.op->kind == Kind::view || (n.op->kind == Kind::piece && g_.at(n.inputs[0]).op->kind == Kind::view);
  }
  /// The node whose memory a view shows. What is handed in is its own base.
  NodeId base(NodeId id) const {
    while (inside_[slot(id)] && lies_in_input(id)) id = g_.at(id).inputs[0];
    return id;
  }

  void choose_buffers() {
    for (const NodeId id : handed_) in_memory_[slot(id)] = true;
    std::vector<std::int32_t> readers(g_.nodes.size(), 0);
    for (const NodeId id : order_) {
      std::set<NodeId> read;
      for (const NodeId in : g_.at(id).inputs) read.insert(base(in));
      for (const NodeId in : read) ++readers[slot(in)];
    }
    for (const NodeId id : order_) {
      const JointNode& n = g_.at(id);
      const Kind kind = n.op->kind;
      const bool own = kind == Kind::kernel || kind == Kind::reduction;
      if (own && !n.several) in_memory_[slot(id)] = true;
      if (kind == Kind::piece && !lies_in_input(id)) in_memory_[slot(id)] = true;
      if (kind == Kind::kernel)
        for (const NodeId in : n.inputs)
          in_memory_[slot(base(in))] = inside_[slot(base(in))] || in_memory_[slot(base(in))];
      const bool computed = kind == Kind::pointwise || kind == Kind::random;
      if (computed && returned_[slot(id)]) in_memory_[slot(id)] = true;
      if (computed && fusion_ == Fusion::little && readers[slot(id)] > 1 && n.sizes.size() > 0)
        in_memory_[slot(id)] = true;
    }
    for (const NodeId id : order_) {
      const JointNode& n = g_.at(id);
      // Constants are written where they are read.
      if (n.inputs.empty() && !returned_[slot(id)]) in_memory_[slot(id)] = false;
      if (n.op->kind == Kind::effect || n.several || lies_in_input(id)) in_memory_[slot(id)] = false;
    }
    store_what_reads_much(readers);
  }

  /// What would read more than four tensors each time that it is computed, and is read more than once, is written to
  /// memory, as is all that reads more than eight (torch/_inductor/config.py of 2.11: realize_reads_threshold and
  /// realize_acc_reads_threshold; ir.py: StorageBox.should_realize_on_reuse).
  void store_what_reads_much(const std::vector<std::int32_t>& readers) {
    constexpr std::size_t often = 4, ever = 8;
    std::vector<std::vector<NodeId>> tensors(g_.nodes.size());
    for (const NodeId id : order_) {
      std::vector<NodeId>& mine = tensors[slot(id)];
      for (const NodeId in : g_.at(id).inputs) {
        const NodeId from = base(in);
        if (in_memory_[slot(from)] || !inside_[slot(from)])
          mine.push_back(from);
        else
          mine.insert(mine.end(), tensors[slot(from)].begin(), tensors[slot(from)].end());
      }
      std::sort(mine.begin(), mine.end());
      mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
      if (g_.at(id).op->kind != Kind::pointwise || in_memory_[slot(id)]) continue;
      if (mine.size() > (readers[slot(id)] > 1 ? often : ever)) in_memory_[slot(id)] = true;
    }
  }

  /// Buffers that computing a node reads, through everything that is computed where it is read.
  const std::vector<NodeId>& read_by(NodeId id) {
    if (reads_.empty()) {
      reads_.resize(g_.nodes.size());
      for (const NodeId n : order_) {
        std::vector<NodeId>& mine = reads_[slot(n)];
        for (const NodeId in : g_.at(n).inputs) {
          const NodeId from = base(in);
          if (in_memory_[slot(from)])
            mine.push_back(from);
          else if (inside_[slot(from)])
            mine.insert(mine.end(), reads_[slot(from)].begin(), reads_[slot(from)].end());
        }
        std::sort(mine.begin(), mine.end());
        mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
      }
    }
    return reads_[slot(id)];
  }

  bool is_kernel(NodeId id) const {
    const JointNode& n = g_.at(id);
    return n.several || n.op->kind == Kind::effect || (in_memory_[slot(id)] && !is_piece(id));
  }

  /// A result of a node with several, which that node allocates.
  bool is_piece(NodeId id) const { return g_.at(id).op->kind == Kind::piece && inside_[slot(g_.at(id).inputs[0])]; }

  void find_last_reads() {
    last_.assign(g_.nodes.size(), -1);
    place_.assign(g_.nodes.size(), -1);
    pieces_.resize(g_.nodes.size());
    for (std::int32_t i = 0; slot(i) < order_.size(); ++i) {
      const NodeId id = order_[slot(i)];
      if (is_piece(id) && in_memory_[slot(id)]) {
        const NodeId whole = g_.at(id).inputs[0];
        pieces_[slot(whole)].push_back(id);
        last_[slot(id)] = std::max(last_[slot(id)], place_[slot(whole)]);
        continue;
      }
      place_[slot(id)] = i;
      if (!is_kernel(id)) continue;
      if (in_memory_[slot(id)]) last_[slot(id)] = std::max(last_[slot(id)], i);
      for (const NodeId in : read_by(id)) last_[slot(in)] = i;
    }
    // A view that is returned keeps what it shows.
    for (std::size_t i = 0; i < returned_.size(); ++i)
      if (returned_[i]) last_[i] = static_cast<std::int32_t>(order_.size());
  }

  std::int64_t bytes(NodeId id) const { return g_.at(id).bytes; }

  std::int32_t buffer_of(NodeId id, std::int32_t takes_over = -1) {
    pass_.buffers.push_back({id, takes_over});
    pass_.of_node[slot(id)] = static_cast<std::int32_t>(pass_.buffers.size() - 1);
    return pass_.of_node[slot(id)];
  }

  void emit() {
    std::int64_t now = 0;
    std::vector<std::vector<NodeId>> ends(order_.size() + 1);
    for (const NodeId id : handed_) {
      buffer_of(id);
      now += bytes(id);
    }
    for (std::size_t i = 0; i < g_.nodes.size(); ++i)
      if (in_memory_[i] && last_[i] >= 0 && slot(last_[i]) < order_.size())
        ends[slot(last_[i])].push_back(static_cast<NodeId>(i));
    pass_.peak = now;
    std::set<NodeId> gone;
    for (std::int32_t i = 0; slot(i) < order_.size(); ++i) {
      const NodeId id = order_[slot(i)];
      if (!is_kernel(id)) continue;
      Kernel k{id, {}, {}};
      if (in_memory_[slot(id)]) {
        const NodeId dying = fusion_ == Fusion::whole ? place_taken(id, ends[slot(i)], gone) : -1;
        const std::int32_t over = dying >= 0 ? pass_.of_node[slot(dying)] : -1;
        k.allocates.push_back(buffer_of(id, over));
        if (over < 0) now += bytes(id);
        if (dying >= 0) gone.insert(dying);
      }
      for (const NodeId piece : pieces_[slot(id)]) {
        k.allocates.push_back(buffer_of(piece));
        now += bytes(piece);
      }
      pass_.peak = std::max(pass_.peak, now + g_.at(id).scratch);
      for (const NodeId end : ends[slot(i)]) {
        if (pass_.of_node[slot(end)] < 0) continue;
        k.frees.push_back(pass_.of_node[slot(end)]);
        if (!gone.count(end)) now -= bytes(end);
      }
      pass_.kernels.push_back(std::move(k));
    }
  }

  /// A fused kernel writes over what it reads for the last time, where that is as large.
  NodeId place_taken(NodeId id, const std::vector<NodeId>& ending, const std::set<NodeId>& gone) const {
    const Kind kind = g_.at(id).op->kind;
    if (kind == Kind::kernel || kind == Kind::piece) return -1;
    for (const NodeId end : ending)
      if (end != id && !gone.count(end) && pass_.of_node[slot(end)] >= 0 && bytes(end) == bytes(id) && bytes(id) > 0)
        return end;
    return -1;
  }

  const JointGraph& g_;
  const std::vector<NodeId> order_, handed_;
  const Fusion fusion_;
  std::vector<bool> in_memory_, returned_, inside_;
  std::vector<std::vector<NodeId>> reads_;
  std::vector<std::int32_t> last_, place_;  ///< by node: the last kernel that reads it; where it stands
  std::vector<std::vector<NodeId>> pieces_;
  Pass pass_;
};

/// The backward pass in its order. What is computed a second time comes just before it is read, in the order of the
/// forward pass (torch/_functorch/partitioners.py, reordering_to_mimic_autograd_engine).
std::vector<NodeId> backward_order(const JointGraph& g, const Partition& p) {
  std::vector<NodeId> order;
  std::vector<bool> done(g.nodes.size(), false);
  const auto add = [&](NodeId root) {
    std::vector<NodeId> open{root}, found;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (done[slot(id)] || !p.backward[slot(id)]) continue;
      done[slot(id)] = true;
      found.push_back(id);
      open.insert(open.end(), g.at(id).inputs.begin(), g.at(id).inputs.end());
    }
    std::sort(found.begin(), found.end());
    order.insert(order.end(), found.begin(), found.end());
  };
  for (NodeId id = 0; slot(id) < g.nodes.size(); ++id)
    if (g.at(id).backward) add(id);
  for (const NodeId id : g.gradients)
    if (id >= 0) add(id);
  return order;
}

/// The forward pass in its order. What only the backward pass asked for, as masks of activations, is computed as soon
/// as what it reads is there: it is fused with that, and the scheduler orders kernels by the memory that they let go.
std::vector<NodeId> forward_order(const JointGraph& g, const Partition& p) {
  std::vector<NodeId> order;
  std::vector<std::int32_t> place(g.nodes.size(), -1);
  std::vector<std::vector<NodeId>> then(g.nodes.size());  ///< by the node that they come right after
  const auto add = [&](NodeId root) {
    std::vector<NodeId> open{root};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (place[slot(id)] >= 0 || !p.forward[slot(id)] || g.at(id).op->kind == Kind::input) continue;
      place[slot(id)] = static_cast<std::int32_t>(order.size());
      order.push_back(id);
      open.insert(open.end(), then[slot(id)].rbegin(), then[slot(id)].rend());
    }
  };
  std::vector<NodeId> after(g.nodes.size(), -1);  ///< the node of the forward pass proper that a node waits for
  for (NodeId id = 0; slot(id) < g.nodes.size(); ++id) {
    if (!p.forward[slot(id)] || g.at(id).op->kind == Kind::input) continue;
    after[slot(id)] = id;
    if (!g.at(id).backward) continue;
    NodeId last = -1;
    for (const NodeId in : g.at(id).inputs) last = std::max(last, after[slot(in)]);
    if (last < 0) continue;
    after[slot(id)] = last;
    then[slot(last)].push_back(id);
  }
  // Copies in another layout stand behind the graph (in_layout) and are made when they are read first.
  for (NodeId id = 0; slot(id) < g.nodes.size(); ++id) {
    if (!p.forward[slot(id)] || (after[slot(id)] >= 0 && after[slot(id)] != id)) continue;
    for (const NodeId in : g.at(id).inputs)
      if (in > id) add(in);
    add(id);
  }
  return order;
}

/// decide_layout_opt, for training.
bool prefers_channels_last(const JointGraph& g, const Partition& p) {
  std::int64_t convolutions = 0, nodes = 1;
  bool all_small = true;
  for (NodeId id = 0; slot(id) < g.nodes.size(); ++id) {
    if (!p.forward[slot(id)]) continue;
    ++nodes;
    const JointNode& n = g.at(id);
    if (n.op->name != "convolution") continue;
    ++convolutions;
    const Dims& x = g.at(n.inputs[0]).sizes;
    const Dims& w = g.at(n.inputs[1]).sizes;
    if (w.size() != 4 || x.size() != 4) return false;
    const bool grouped = x[1] != w[1];
    if (grouped && w[1] > 1) return false;
    if (w[0] * 2 <= w[1] && w[2] > 1) return false;
    all_small = all_small && w[0] <= 64 && w[1] <= 64;
  }
  return convolutions > 0 && nodes < 300 * convolutions && !all_small;
}

}  // namespace

bool in_layout(JointGraph& g, Partition& p) {
  if (!prefers_channels_last(g, p)) return false;
  for (JointNode& n : g.nodes)
    if (n.scratch_in_layout >= 0) n.scratch = n.scratch_in_layout;
  std::vector<NodeId> copies(g.nodes.size(), -1);
  const std::size_t count = g.nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    const bool backward = g.nodes[i].op->name == "convolution_backward";
    if (g.nodes[i].op->name != "convolution" && !backward) continue;
    for (std::size_t k = 0; k < g.nodes[i].inputs.size(); ++k) {
      const NodeId in = g.nodes[i].inputs[k];
      const JointNode from = g.at(in);
      // One position or one channel lies the same way in both.
      if (from.op->kind != Kind::input || from.sizes.size() != 4 || from.sizes[1] == 1 ||
          from.sizes[2] * from.sizes[3] == 1)
        continue;
      if (std::find(g.primals.begin(), g.primals.end(), in) == g.primals.end()) continue;
      NodeId& copy = copies[slot(in)];
      if (copy < 0) {
        JointNode n = from;
        n.op = &op_row("to_layout");
        n.inputs = {in};
        n.call = g.nodes[i].call;
        copy = static_cast<NodeId>(g.nodes.size());
        n.storage = copy;
        g.nodes.push_back(n);
        p.forward.push_back(true);
        p.backward.push_back(false);
      }
      const auto saved = std::find(p.saved.begin(), p.saved.end(), in);
      const bool kept = std::find(p.saved.begin(), p.saved.end(), copy) != p.saved.end();
      if (backward && saved != p.saved.end() && !kept) p.saved.push_back(copy);
      g.nodes[i].inputs[k] = copy;
    }
  }
  return true;
}

PassPlans plan(const JointGraph& graph, const Partition& p, Fusion fusion) {
  PassPlans plans;
  std::vector<NodeId> results = graph.outputs, handed;
  results.insert(results.end(), p.saved.begin(), p.saved.end());
  plans.forward = PassPlanner(graph, forward_order(graph, p), {}, results, fusion).run();
  for (const NodeId id : p.saved)
    if (graph.at(id).op->kind != Kind::input) handed.push_back(id);
  plans.backward = PassPlanner(graph, backward_order(graph, p), std::move(handed), graph.gradients, fusion).run();
  return plans;
}

}  // namespace memplan::compiled
