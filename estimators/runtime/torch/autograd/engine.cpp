#include "estimators/runtime/torch/autograd/engine.h"

#include <algorithm>
#include <queue>

#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

namespace {

struct Task {
  NodeRef node;
  TensorList inputs;
};

/// Ready nodes: highest sequence number first. The heap of the standard library breaks ties between accumulators
/// as it does in PyTorch, since the container and the comparison are the same.
struct Later {
  bool operator()(const Task& a, const Task& b) const { return a.node->sequence < b.node->sequence; }
};

/// InputBuffer::add: the first gradient moves in; a later one is added in place where nobody else holds the earlier
/// one or its memory, else into a new tensor.
void accumulate(Run& r, Tensor& slot, Tensor&& incoming) {
  if (!slot) {
    slot = std::move(incoming);
    return;
  }
  // A whole gradient meets that of a rank's part (memplan::vocab_embedding of a tied head): DTensor cuts it first.
  Tensor cut;
  if (!incoming->is_view && incoming->storage->bytes > incoming->bytes().count) cut = r.empty_like(slot);
  // A view holds its base and so a second reference to the memory, even where gradients are off.
  const bool in_place = slot.use_count() == 1 && slot->storage->refs == 1 && !(slot->is_view && slot->holds_base) &&
                        is_non_overlapping_and_dense(*slot);
  if (in_place) return;
  slot = op::pointwise(r, {slot, incoming}, op::result_type({slot, incoming}));
}

/// A stored gradient must have the parameter's strides where the parameter is dense, else be contiguous
/// (torch/csrc/autograd/utils/grad_layout_contract.h).
bool obeys_layout(const TensorBody& grad, const TensorBody& leaf) {
  if (is_non_overlapping_and_dense(leaf)) {
    for (int i = 0; i < grad.rank(); ++i)
      if (grad.sizes[i] != 1 && grad.strides[i] != leaf.strides[i]) return false;
    return true;
  }
  return is_contiguous(grad);
}

void accumulate_grad(Run& r, TensorBody& leaf, TensorList& inputs) {
  Tensor fresh = std::move(inputs[0]);
  if (!fresh) return;
  if (leaf.grad) return;  // in place: leaf.grad += fresh
  Tensor stored;
  if (fresh.use_count() <= 1 && obeys_layout(*fresh, leaf)) {
    stored = r.detach(fresh);
  } else if (is_non_overlapping_and_dense(leaf)) {
    stored = r.empty_strided(leaf.sizes, leaf.strides, fresh->dtype, Category::gradient);
  } else {
    stored = r.empty(leaf.sizes, fresh->dtype, Category::gradient);
  }
  r.set_category(stored, Category::gradient);
  if (stored->storage->allocation >= 0) r.schedule.allocations[stored->storage->allocation].label = leaf.name;
  r.set_reason(stored, "gradient, until zero_grad");
  leaf.grad = std::move(stored);
}

/// validate_outputs: a gradient is reduced to the shape of the forward input and cast to its dtype.
void validate(Run& r, Node& node, TensorList& grads) {
  for (std::size_t i = 0; i < grads.size() && i < node.next.size(); ++i) {
    Tensor& g = grads[i];
    if (!node.wants(static_cast<int>(i))) {
      g.reset();
      continue;
    }
    if (!g) continue;
    const InputMeta& meta = node.inputs[i];
    if (!(g->sizes == meta.sizes)) g = op::sum_to(r, g, meta.sizes);
    if (g->dtype != meta.dtype && is_floating(meta.dtype)) g = op::to(r, g, meta.dtype);
    if (meta.on_host && !g->on_host) g = r.host(meta.sizes, meta.dtype);
  }
}

class GraphTask {
 public:
  explicit GraphTask(Run& r, const GradientRequest* request = nullptr) : r_(r), request_(request) {}

  void run(const Tensor& loss, Tensor root) {
    if (!loss->grad_fn) fail_input("the loss does not depend on any parameter", {}, "is every parameter frozen?");
    run(Edge{loss->grad_fn, loss->output_nr}, std::move(root));
  }

  void run(const Edge& from, Tensor root) {
    count_dependencies(from.node);
    if (request_) find_needed(from.node.get());
    TensorList inputs(from.node->outputs);
    inputs[from.input_nr] = std::move(root);
    ready_.push({from.node, std::move(inputs)});
    while (!ready_.empty()) {
      // Move the task out of the heap: its gradients must not be held twice.
      Task task = std::move(const_cast<Task&>(ready_.top()));
      // The heap compares nodes while it sinks the hole, so the moved-from top needs a node until then.
      const_cast<Task&>(ready_.top()).node = task.node;
      ready_.pop();
      evaluate(std::move(task));
    }
  }

 private:
  void count_dependencies(const NodeRef& root) {
    thread_local std::uint32_t marks = 0;  // only compared for equality within one search; a graph stays on its thread
    const std::uint32_t mark = ++marks;
    std::vector<Node*> stack{root.get()};
    root->visited = mark;
    root->pending = 0;
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      for (Edge& e : n->next) {
        if (!e.node || !may_lead(e.node.get())) continue;
        if (e.node->visited != mark) {
          e.node->visited = mark;
          e.node->pending = 0;
          stack.push_back(e.node.get());
        }
        ++e.node->pending;
      }
    }
  }

  /// Where the caller knows what leads to a target, nothing else is looked at: a graph has as many groups of weights as
  /// layers, and looking at all of it for each would make a backward pass quadratic.
  bool may_lead(Node* node) const { return !request_ || !request_->between || request_->between->count(node) > 0; }

  /// Nodes from which a target can be reached.
  void find_needed(Node* root) {
    if (request_->between) {
      for (Node* n : *request_->between) needed_[n] = true;
      return;
    }
    for (Node* t : request_->targets) needed_[t] = true;
    std::vector<std::pair<Node*, std::size_t>> path{{root, 0}};
    needed_.try_emplace(root, false);
    while (!path.empty()) {
      auto& [node, at] = path.back();
      if (at < node->next.size()) {
        Node* next = node->next[at++].node.get();
        if (next && needed_.try_emplace(next, false).second) path.push_back({next, 0});
        continue;
      }
      for (const Edge& e : node->next)
        if (e.node && needed_[e.node.get()]) needed_[node] = true;
      path.pop_back();
    }
  }
  bool needs(const Edge& e) const {
    const auto it = needed_.find(e.node.get());
    return it != needed_.end() && it->second;
  }

  void evaluate(Task task) {
    if (!request_) return evaluate_whole(std::move(task));
    Node& node = *task.node.get();
    if (std::find(request_->targets.begin(), request_->targets.end(), &node) != request_->targets.end()) {
      captured[&node] = std::move(task.inputs[0]);
      return;
    }
    if (const auto hook = request_->hooks.find(&node); hook != request_->hooks.end()) hook->second(task.inputs);
    const std::vector<Edge> all = node.next;
    for (Edge& e : node.next)
      if (e.node && !needs(e)) e = {};
    const NodeRef keep = task.node;
    evaluate_whole(std::move(task));
    node.next = all;
  }

 public:
  std::unordered_map<Node*, Tensor> captured;

 private:
  void evaluate_whole(Task task) {
    Node& node = *task.node.get();
    r_.scope = node.scope;
    r_.call = node.call;
    r_.begin_op(node.name);
    for (const auto& hook : node.pre_hooks) hook(r_);
    if (node.leaf) {
      const bool any = static_cast<bool>(task.inputs[0]);
      accumulate_grad(r_, *node.leaf, task.inputs);
      if (any && r_.backward_hooks) r_.backward_hooks->accumulated(r_, *node.leaf);
      return;
    }
    TensorList outputs;
    {
      TensorList inputs = std::move(task.inputs);
      bool any = false;
      for (const Tensor& g : inputs) any = any || g;
      if (any) {
        if (!node.unpacks_late) unpack_saved(r_, node);
        outputs = node.backward(r_, node, inputs);
        // What a hook unpacked is a local name of the node's apply: it goes before the gradients are validated.
        for (std::size_t i = 0; i < node.packed.size(); ++i)
          if (node.packed[i].frame) node.saved[i].reset();
      }
      outputs.resize(node.next.size());
      validate(r_, node, outputs);
    }
    if (!request_ || !request_->keep_graph) {
      node.saved.clear();
      node.packed.clear();
    }
    for (std::size_t i = 0; i < node.next.size(); ++i) {
      Edge& e = node.next[i];
      if (!e.node) continue;
      Node* next = e.node.get();
      TensorList& buffer = waiting_[next];
      if (buffer.empty()) buffer.resize(next->outputs);
      if (outputs[i]) accumulate(r_, buffer[e.input_nr], std::move(outputs[i]));
      if (--next->pending == 0) {
        Task ready{e.node, std::move(buffer)};
        waiting_.erase(next);
        ready_.push(std::move(ready));
      }
    }
  }

  Run& r_;
  const GradientRequest* request_;
  std::unordered_map<Node*, bool> needed_;
  std::priority_queue<Task, std::vector<Task>, Later> ready_;
  std::unordered_map<Node*, TensorList> waiting_;
};

}  // namespace

void backward(Run& r, const TensorList& roots, const TensorList& grads) {
  r.phase = Phase::backward;
  ScopedValue<bool> no_grad(r.grad_mode, false);
  ScopedValue<bool> no_autocast(r.autocast, false);
  ScopedValue<bool> thread(r.on_engine_thread, true);
  const auto scope = r.scope, call = r.call;
  r.begin_op("torch.autograd.backward");
  if (roots.size() == 1) {
    GraphTask(r).run(roots[0], grads[0]);
  } else {
    // GraphRoot: a node whose outputs are the gradients.
    auto* node = new Node;
    node->run = &r;
    node->name = r.intern("GraphRoot");
    node->sequence = UINT64_MAX;
    for (const Tensor& t : roots) {
      node->next.push_back(t->grad_fn ? Edge{t->grad_fn, t->output_nr} : Edge{});
      node->inputs.push_back({t->sizes, t->dtype, t->on_host});
    }
    node->backward = [grads](Run&, Node&, TensorList&) { return grads; };
    Tensor start = r.host({}, DType::float32), first = r.host({}, DType::float32);
    start->grad_fn = NodeRef(node);
    GraphTask(r).run(start, first);
  }
  if (r.backward_hooks) r.backward_hooks->finished(r);
  r.scope = scope;
  r.call = call;
}

TensorList gradients(Run& r, const GradientRequest& request) {
  r.phase = Phase::backward;
  ScopedValue<bool> no_grad(r.grad_mode, false);
  ScopedValue<bool> no_autocast(r.autocast, false);
  ScopedValue<bool> thread(r.on_engine_thread, true);
  ScopedValue<std::int32_t> scope(r.scope, r.scope), call(r.call, r.call);
  r.begin_op("torch.autograd.grad");
  GraphTask task(r, &request);
  if (request.roots.size() == 1) {
    task.run(request.roots[0], request.grads[0]);
  } else {
    NodeRef root(new Node);
    root->run = &r;
    root->name = r.intern("GraphRoot");
    root->sequence = UINT64_MAX;
    root->next = request.roots;
    // An output that the next stage does not use has no gradient.
    for (const Tensor& g : request.grads)
      root->inputs.push_back(g ? InputMeta{g->sizes, g->dtype, g->on_host} : InputMeta{});
    root->backward = [&request](Run&, Node&, TensorList&) { return request.grads; };
    task.run(Edge{root, 0}, r.host({}, DType::float32));
  }
  TensorList out;
  for (Node* t : request.targets) out.push_back(std::move(task.captured[t]));
  return out;
}

void backward(Run& r, const Tensor& loss) {
  r.phase = Phase::backward;
  ScopedValue<bool> no_grad(r.grad_mode, false);
  ScopedValue<bool> no_autocast(r.autocast, false);
  ScopedValue<bool> thread(r.on_engine_thread, true);
  const auto scope = r.scope, call = r.call;
  r.begin_op("loss.backward");
  Tensor root = r.empty_like(loss);
  GraphTask(r).run(loss, root);
  if (r.backward_hooks) r.backward_hooks->finished(r);
  r.scope = scope;
  r.call = call;
}

}  // namespace memplan
