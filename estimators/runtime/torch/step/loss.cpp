#include "estimators/runtime/torch/step/loss.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/runtime/torch/aten/node.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"
#include "estimators/setup/field.h"
#include "estimators/setup/strategies.h"

namespace memplan {

namespace {

void add_floating(const ValueList& outputs, TensorList& found) {
  for (const Value& v : outputs) {
    if (v.is_tensor() && v.tensor() && is_floating(v.tensor()->dtype)) found.push_back(v.tensor());
    if (v.is_list()) add_floating(v.list(), found);
  }
}

/// In the order in which the model returns them.
TensorList floating(const ValueList& outputs) {
  TensorList found;
  add_floating(outputs, found);
  return found;
}

/// The leaves that get gradients from a tensor.
std::set<const TensorBody*> trained_by(const Tensor& t) {
  std::set<const TensorBody*> leaves;
  if (t->requires_grad_leaf) leaves.insert(t.get());
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open{(t->is_outdated() ? t->base->grad_fn : t->grad_fn).get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!node || !seen.insert(node).second) continue;
    if (node->leaf) leaves.insert(node->leaf);
    for (const Edge& e : node->next) open.push_back(e.node.get());
  }
  return leaves;
}

/// Which of them is the model's own loss; 0, the prediction, where none is.
std::size_t own_loss(const TensorList& found) {
  if (found[0]->rank() == 0) return 0;
  std::optional<std::set<const TensorBody*>> needed;
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (found[i]->rank() != 0 || !found[i]->requires_grad()) continue;
    if (!needed) needed = trained_by(found[0]);
    if (std::ranges::includes(trained_by(found[i]), *needed)) return i;
  }
  return 0;
}

/// logits.float(), labels moved by one, the sum over all tokens divided by their number: the Trainer counts the tokens
/// of all micro-batches beforehand.
Tensor causal_lm_loss(Run& r, const Tensor& y, const Tensor& target, bool divided, Tensor& tokens) {
  const auto run = [&](const char* op, std::vector<Value> args) {
    r.begin_op(op);
    return call_op(r, op, std::move(args))[0].tensor();
  };
  Tensor logits = run("aten::to.dtype", {y, Value(DType::float32)});
  Tensor labels = run("aten::constant_pad_nd", {target, Value(ValueList{0, 1}), -100});
  Tensor next = run("aten::contiguous", {op::slice(r, labels, -1, 1, labels->size(-1), 1)});
  logits = op::flatten(r, logits, 0, -2);
  next = op::flatten(r, next, 0, -1);
  constexpr int sum = 2;  // at::Reduction::Sum
  Tensor loss = divided ? run("memplan::loss_parallel", {logits, next, sum})
                        : run("aten::cross_entropy_loss", {logits, next, Value(), sum});
  if (!tokens) tokens = r.empty({}, DType::int64, Category::input);
  return run("aten::div.Tensor", {loss, tokens});
}

}  // namespace

Loss loss_of(const Tape& tape, const TrainingSetup& setup) {
  if (setup.loss != Loss::automatic) return setup.loss;
  const auto root = std::find_if(tape.scopes.begin(), tape.scopes.end(),
                                 [](const Scope& s) { return s.parent < 0 && s.path.empty(); });
  // A recording ran the loss of the reference program, whatever the class would bring.
  const bool stated =
      root != tape.scopes.end() && !tape.exported.recorded && fact_of_class("causal_lm_loss", root->module_class);
  return stated && !in_megatron(setup.parallel) ? Loss::causal_lm : setup.loss;
}

TargetShape target_shape(const ValueList& outputs, const Tape& tape, const TrainingSetup& setup) {
  const TensorList found = floating(outputs);
  if (found.empty())
    fail_input("the model has no floating output to take a loss of", {}, "use " + setting(Field::mode, "inference"));
  TargetShape s;
  s.loss = loss_of(tape, setup);
  if (s.loss == Loss::automatic) s.output = own_loss(found);
  const Tensor& y = found[s.output];
  s.in_model = wrapper_of(setup.parallel.sharding).loss_in_model;
  s.drops_output = s.in_model || s.loss == Loss::causal_lm;
  if (s.loss == Loss::automatic) s.loss = y->rank() >= 2 ? Loss::cross_entropy : Loss::sum;
  if (y->rank() == 0) s.loss = Loss::sum;
  if (s.loss == Loss::causal_lm && y->rank() != 3) {
    if (setup.loss == Loss::causal_lm)
      fail(ErrorKind::usage, "the loss of a causal language model needs logits of [batch, sequence, vocabulary]",
           setting(Field::loss), "use " + setting(Field::loss, "cross-entropy"));
    s.loss = y->rank() >= 2 ? Loss::cross_entropy : Loss::sum;
  }
  s.divided = setup.parallel.loss_parallel;
  if (s.divided && s.loss != Loss::cross_entropy && s.loss != Loss::causal_lm)
    fail(ErrorKind::usage, "PyTorch divides no loss but cross entropy among tensor-parallel ranks",
         setting(Field::loss_parallel), "leave it out or use " + setting(Field::loss, "cross-entropy"));
  if (s.loss == Loss::mse) {
    s.sizes = y->sizes;
    s.dtype = y->dtype;
  } else if (s.loss == Loss::causal_lm) {
    s.sizes = Dims{y->sizes[0], y->sizes[1]};
  } else if (s.loss == Loss::cross_entropy) {
    if (y->rank() < 2)
      fail(ErrorKind::usage, "cross entropy needs an output of classes", setting(Field::loss),
           "use " + setting(Field::loss, "mse") + " or " + setting(Field::loss, "sum"));
    s.sizes = y->sizes;
    s.sizes.erase(y->rank() == 4 ? 1 : y->rank() - 1);
  }
  return s;
}

bool has_target(const TargetShape& s) {
  return s.loss != Loss::sum && std::find(s.sizes.begin(), s.sizes.end(), 0) == s.sizes.end();
}

Tensor make_target(Run& r, const TargetShape& s) {
  if (s.loss == Loss::sum) return {};
  r.begin_op("target.to");
  Tensor t = r.empty(s.sizes, s.dtype, Category::input);
  r.label(t, "target");
  r.set_reason(t, "batch");
  return t;
}

Tensor compute_loss(Run& r, const ValueList& outputs, const Tensor& target, const TargetShape& s, Tensor& tokens) {
  Tensor y = floating(outputs).at(s.output);
  auto run = [&](const char* op, std::vector<Value> args) {
    r.begin_op(op);
    return call_op(r, op, std::move(args))[0].tensor();
  };
  switch (s.loss) {
    case Loss::mse:
      return run("aten::mse_loss", {y, target});
    case Loss::cross_entropy: {
      if (y->rank() == 2 || y->rank() == 4) return run("aten::cross_entropy_loss", {y, target});
      // The mean is taken of what the model's mask leaves.
      if (s.in_model && y->rank() == 3 && r.grad_mode)
        return run("aten::mean", {run("memplan::vocab_cross_entropy", {y, target})});
      Tensor flat = op::flatten(r, y, 0, -2);
      Tensor classes = op::flatten(r, target, 0, -1);
      if (s.divided) return run("memplan::loss_parallel", {flat, classes, 1});
      return run("aten::cross_entropy_loss", {flat, classes});
    }
    case Loss::causal_lm:
      return causal_lm_loss(r, y, target, s.divided, tokens);
    case Loss::automatic:
    case Loss::sum:
      return y->rank() == 0 ? y : run("aten::sum", {y});
  }
  return {};
}

}  // namespace memplan
