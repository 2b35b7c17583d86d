#include "estimators/autograd/engine.h"

#include <queue>

#include "estimators/aten/ops.h"

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
  const bool in_place = slot.use_count() == 1 && slot->storage->refs == 1 && !slot->is_view && is_non_overlapping_and_dense(*slot);
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
  explicit GraphTask(Run& r) : r_(r) {}

  void run(const Tensor& loss, Tensor root) {
    if (!loss->grad_fn) fail_input("the loss does not depend on any parameter", {}, "is every parameter frozen?");
    count_dependencies(loss->grad_fn);
    TensorList inputs(loss->grad_fn->outputs);
    inputs[loss->output_nr] = std::move(root);
    ready_.push({loss->grad_fn, std::move(inputs)});
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
        if (!e.node) continue;
        if (e.node->visited != mark) {
          e.node->visited = mark;
          e.node->pending = 0;
          stack.push_back(e.node.get());
        }
        ++e.node->pending;
      }
    }
  }

  void evaluate(Task task) {
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
        for (std::size_t i = 0; i < node.packed.size(); ++i)
          if (node.packed[i].frame) node.saved[i] = node.packed[i].frame->unpack(r_, node.packed[i].slot);
        outputs = node.backward(r_, node, inputs);
        // What a hook unpacked is a local name of the node's apply: it goes before the gradients are validated.
        for (std::size_t i = 0; i < node.packed.size(); ++i)
          if (node.packed[i].frame) node.saved[i].reset();
      }
      outputs.resize(node.next.size());
      validate(r_, node, outputs);
    }
    node.saved.clear();
    node.packed.clear();
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
  std::priority_queue<Task, std::vector<Task>, Later> ready_;
  std::unordered_map<Node*, TensorList> waiting_;
};

}  // namespace

void backward(Run& r, const TensorList& roots, const TensorList& grads) {
  r.phase = Phase::backward;
  Restore<bool> no_grad(r.grad_mode, false);
  Restore<bool> no_autocast(r.autocast, false);
  Restore<bool> thread(r.on_engine_thread, true);
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

void backward(Run& r, const Tensor& loss) {
  r.phase = Phase::backward;
  Restore<bool> no_grad(r.grad_mode, false);
  Restore<bool> no_autocast(r.autocast, false);
  Restore<bool> thread(r.on_engine_thread, true);
  const auto scope = r.scope, call = r.call;
  r.begin_op("loss.backward");
  Tensor root = r.empty_like(loss);
  GraphTask(r).run(loss, root);
  if (r.backward_hooks) r.backward_hooks->finished(r);
  r.scope = scope;
  r.call = call;
}

}  // namespace memplan
