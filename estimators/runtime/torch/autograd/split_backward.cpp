#include "estimators/runtime/torch/autograd/split_backward.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>

#include "estimators/runtime/torch/autograd/engine.h"

namespace memplan {

namespace {

using Reverse = std::unordered_map<Node*, std::vector<Node*>>;

/// construct_reverse_graph
Reverse reversed(const TensorList& roots) {
  Reverse reverse;
  std::set<Node*> seen;
  std::deque<Node*> open;
  for (const Tensor& t : roots)
    if (t->grad_fn && seen.insert(t->grad_fn.get()).second) open.push_back(t->grad_fn.get());
  while (!open.empty()) {
    Node* node = open.front();
    open.pop_front();
    for (const Edge& e : node->next) {
      if (!e.node) continue;
      auto& users = reverse[e.node.get()];
      if (users.empty()) open.push_back(e.node.get());
      users.push_back(node);
    }
  }
  return reverse;
}

/// reverse_closure: what is reached from `from` against the edges, without going past `stop`; and where it stopped, in
/// the order of meeting.
std::set<Node*> closure(Node* from, const std::set<Node*>& stop, const Reverse& reverse, std::vector<Node*>& stopped) {
  std::set<Node*> reached;
  std::deque<Node*> open;
  if (from && reached.insert(from).second) open.push_back(from);
  while (!open.empty()) {
    const auto users = reverse.find(open.front());
    open.pop_front();
    if (users == reverse.end()) continue;
    for (Node* user : users->second) {
      if (reached.count(user) > 0) continue;
      if (stop.count(user) > 0) {
        if (std::find(stopped.begin(), stopped.end(), user) == stopped.end()) stopped.push_back(user);
        continue;
      }
      reached.insert(user);
      open.push_back(user);
    }
  }
  return reached;
}

/// get_param_groups
std::vector<WeightGroup> groups_of(const TensorList& inputs, const TensorList& weights, const Reverse& reverse) {
  std::set<Node*> behind_inputs;
  std::vector<Node*> none;
  for (const Tensor& t : inputs) behind_inputs.merge(closure(t->accumulator.get(), {}, reverse, none));
  std::vector<WeightGroup> groups;
  std::unordered_map<Node*, std::size_t> group_at;
  for (const Tensor& weight : weights) {
    std::vector<Node*> met;
    std::set<Node*> between = closure(weight->accumulator.get(), behind_inputs, reverse, met);
    if (met.empty()) continue;
    std::size_t mine = groups.size();
    for (Node* node : met)
      if (const auto it = group_at.find(node); it != group_at.end()) mine = it->second;
    if (mine == groups.size()) groups.emplace_back();
    groups[mine].weights.push_back(weight);
    groups[mine].between.merge(between);
    groups[mine].one_node = groups[mine].one_node && met.size() == 1;
    for (Node* node : met)
      if (group_at.try_emplace(node, mine).second) groups[mine].nodes.push_back(NodeRef(node));
  }
  return groups;
}

}  // namespace

TensorList backward_inputs(Run& r, const TensorList& roots, const TensorList& grads, const TensorList& inputs,
                           const TensorList& weights, std::vector<WeightGroup>& groups) {
  groups = groups_of(inputs, weights, reversed(roots));
  GradientRequest request;
  request.keep_graph = true;
  request.grads = grads;
  for (const Tensor& t : roots) request.roots.push_back({t->grad_fn, t->output_nr});
  for (const Tensor& t : inputs) request.targets.push_back(t->accumulator.get());
  for (WeightGroup& g : groups) {
    g.grads.resize(g.nodes.size());
    for (std::size_t i = 0; i < g.nodes.size(); ++i)
      request.hooks[g.nodes[i].get()] = [&g, i](const TensorList& arrived) { g.grads[i] = arrived; };
  }
  return gradients(r, request);
}

void backward_weights(Run& r, std::vector<WeightGroup> groups) {
  // The function's names hold the last group's tensors until the next group binds them again.
  TensorList last_grads, computed;
  Tensor last_sum;
  NodeRef last_node;
  GradientRequest request;
  for (WeightGroup& g : groups) {
    request.roots.clear();
    request.grads.clear();
    request.targets.clear();
    r.begin_op("stage_backward_weight");
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      last_grads = g.grads[i];
      last_node = g.nodes[i];
      // sum(non_none_grads) begins with the number 0: a new tensor even of one gradient.
      Tensor sum;
      for (const Tensor& t : last_grads)
        if (t) sum = r.empty_like(t);
      if (!sum) continue;
      request.roots.push_back({last_node, 0});
      request.grads.push_back(sum);
      last_sum = std::move(sum);
    }
    for (const NodeRef& n : g.nodes) g.between.insert(n.get());
    g.nodes.clear();
    if (request.roots.empty()) continue;
    for (const Tensor& w : g.weights) request.targets.push_back(w->accumulator.get());
    request.between = g.one_node ? &g.between : nullptr;
    computed = gradients(r, request);
    g.grads.clear();
    for (std::size_t i = 0; i < g.weights.size(); ++i) {
      const Tensor& weight = g.weights[i];
      if (!computed[i] || weight->grad) continue;  // weight.grad += dw
      r.set_category(computed[i], Category::gradient);
      if (computed[i]->storage->allocation >= 0)
        r.schedule.allocations[static_cast<std::size_t>(computed[i]->storage->allocation)].label = weight->name;
      r.set_reason(computed[i], "gradient, until zero_grad");
      weight->grad = computed[i];
    }
  }
}

}  // namespace memplan
