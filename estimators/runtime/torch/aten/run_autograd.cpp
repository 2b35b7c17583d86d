// The autograd half of Run: nodes, what they keep, and how writes change histories.
#include <utility>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

namespace {

Edge gradient_edge(Run& run, const Tensor& t);

/// What stays of a tensor's layout: enough to see another memory through it.
struct Geometry {
  explicit Geometry(const TensorBody& t) : sizes(t.sizes), strides(t.strides), offset(t.offset) {}
  Dims sizes, strides;
  std::int64_t offset = 0;
};

/// VariableHooks::grad_fn (torch/csrc/autograd/variable.cpp): a view whose base was written to since gets a new
/// history, as_strided of the base. Its backward fills a memory of the base's size with zeros and writes the gradient
/// into it.
void follow_base(Run& run, const Tensor& view) {
  auto* node = new Node;
  node->run = &run;
  node->sequence = run.next_sequence++;
  node->name = run.intern("AsStridedBackward");
  node->scope = run.scope;
  node->call = run.call;
  const Tensor& base = view->base;
  node->next.push_back(gradient_edge(run, base));
  node->inputs.push_back({base->sizes, base->dtype, base->on_host});
  node->backward = [whole = Geometry(*base)](Run& r, Node&, TensorList& g) {
    return TensorList{r.empty_strided(whole.sizes, whole.strides, g[0]->dtype)};
  };
  view->grad_fn = NodeRef(node);
  view->output_nr = 0;
  view->seen_writes = base->writes;
}

/// The node that receives the gradient of `t`: its grad_fn, or the leaf's accumulator (made on first use).
Edge gradient_edge(Run& run, const Tensor& t) {
  if (!t || !t->requires_grad()) return {};
  if (t->is_outdated()) follow_base(run, t);
  if (t->grad_fn) return {t->grad_fn, t->output_nr};
  if (!t->accumulator) {
    auto* node = new Node;
    node->run = &run;
    node->sequence = UINT64_MAX;
    node->name = run.intern("AccumulateGrad");
    node->leaf = t.get();
    t->accumulator = NodeRef(node);
  }
  return {t->accumulator, 0};
}

template <class Inputs, class Outputs>
Node* make_node(Run& run, const Inputs& inputs, const Outputs& outputs, Backward backward) {
  if (!run.grad_mode) return nullptr;
  bool any = false;
  for (const Tensor& t : inputs) any = any || (t && t->requires_grad());
  if (!any) return nullptr;
  auto* node = new Node;
  node->run = &run;
  node->sequence = run.next_sequence++;
  node->name = run.schedule.ops.empty() ? -1 : run.schedule.ops.back().name;
  node->scope = run.scope;
  node->call = run.call;
  node->backward = std::move(backward);
  node->next.reserve(inputs.size());
  node->inputs.reserve(inputs.size());
  for (const Tensor& t : inputs) {
    node->next.push_back(gradient_edge(run, t));
    node->inputs.push_back(t ? InputMeta{t->sizes, t->dtype, t->on_host} : InputMeta{});
  }
  NodeRef owner(node);
  int nr = 0;
  bool owned = false;
  for (const Tensor& t : outputs) {
    if (t && (is_floating(t->dtype) || is_complex(t->dtype))) {
      t->grad_fn = owner;
      t->output_nr = nr;
      owned = true;
    }
    ++nr;
  }
  // Integers have no gradient: the node goes with its last owner.
  if (nr > 0 && !owned) return nullptr;
  node->outputs = std::max(nr, 1);
  // An in-place op has no outputs yet: rebase() takes the node over before anyone else looks at it.
  if (nr == 0) {
    ++node->refs;
    owner = NodeRef();
    --node->refs;
  }
  return node;
}

}  // namespace

Node* Run::record(std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs, Backward backward) {
  return make_node(*this, inputs, outputs, std::move(backward));
}
Node* Run::record(const TensorList& inputs, const TensorList& outputs, Backward backward) {
  return make_node(*this, inputs, outputs, std::move(backward));
}

void Run::save(Node* node, const Tensor& t) {
  if (!node || !t) return;
  if (save_hook) {
    save_hook->save(*this, *node, t, false);
    return;
  }
  keep(node, t);
}

void Run::keep(Node* node, const Tensor& t) {
  node->saved.push_back(t);
  if (t->storage && t->storage->allocation >= 0) {
    Allocation& a = schedule.allocations[t->storage->allocation];
    if (a.reason < 0) a.reason = node->name;
  }
}

void Run::save_output(Node* node, const Tensor& t) {
  if (!node || !t) return;
  if (save_hook)
    save_hook->save(*this, *node, detach(t), true);
  else
    keep(node, detach(t));
}

void Run::rebase(const Tensor& t, Node* node) {
  if (!node) return;
  if (t->base) return rebase_base(t, node);
  t->grad_fn = NodeRef(node);
  t->output_nr = 0;
  ++t->writes;
}

void Run::set_base(const Tensor& view, const Tensor& t) {
  if (!grad_mode || view.get() == t.get()) return;
  view->base = t->base ? t->base : t;
  view->seen_writes = view->base->writes;
}

// CopySlices (torch/csrc/autograd/functions/tensor.cpp): the base's gradient is copied, the op's own backward gets a
// copy of the part, and what it says of its first input is written back into that part. It unpacks what it saved behind
// both copies, so a checkpoint runs again beside them.
void Run::rebase_base(const Tensor& view, Node* node) {
  const Tensor base = view->base;
  const InputMeta part_meta = node->inputs.at(0);
  node->next[0] = gradient_edge(*this, base);
  node->inputs[0] = {base->sizes, base->dtype, base->on_host};
  node->sequence = next_sequence++;
  node->backward = [own = std::move(node->backward), part_meta, part = Geometry(*view), whole = Geometry(*base)](
                       Run& r, Node& n, TensorList& g) {
    const Tensor result = r.empty_strided(whole.sizes, whole.strides, g[0]->dtype);
    const Tensor slice = r.alias(result, part.sizes, part.strides, part.offset - whole.offset);
    const InputMeta base_meta = std::exchange(n.inputs[0], part_meta);
    TensorList grads;
    {
      TensorList copy{op::clone(r, slice)};
      unpack_saved(r, n);
      grads = own(r, n, copy);
    }
    n.inputs[0] = base_meta;
    if (n.wants(0)) grads[0] = result;
    return grads;
  };
  node->unpacks_late = true;
  base->grad_fn = NodeRef(node);
  base->output_nr = 0;
  ++base->writes;
  follow_base(*this, view);
}

void unpack_saved(Run& run, Node& node) {
  for (std::size_t i = 0; i < node.packed.size(); ++i)
    if (node.packed[i].frame) node.saved[i] = node.packed[i].frame->unpack(run, node.packed[i].slot);
}

void Run::release_node(Node* node) {
  // A chain of a hundred thousand nodes must not be freed by recursion.
  dying_nodes_.push_back(node);
  if (releasing_nodes_) return;
  releasing_nodes_ = true;
  while (!dying_nodes_.empty()) {
    Node* n = dying_nodes_.back();
    dying_nodes_.pop_back();
    delete n;
  }
  releasing_nodes_ = false;
}

}  // namespace memplan
