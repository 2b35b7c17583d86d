#include "estimators/runtime/torch/step/muon.h"

#include <algorithm>
#include <map>
#include <set>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

Tensor norm(Run& r, const Tensor& x) {
  return call_op(r, "aten::linalg_vector_norm", {Value(x), Value(2.0), Value(), Value(false)})[0].tensor();
}

/// torch/optim/_muon.py: one matrix after the other, five Newton-Schulz steps in bfloat16 each.
class Muon : public Optimizer {
 public:
  explicit Muon(TensorList parameters) : parameters_(std::move(parameters)) {}

  void step(Run& r) override {
    r.phase = Phase::optimizer;
    r.scope = r.call = -1;
    ScopedValue<bool> no_grad(r.grad_mode, false);
    r.begin_op("Muon.step");
    for (const Tensor& p : parameters_) {
      if (!p->grad || momentum_.count(p.get())) continue;
      Tensor buffer = r.empty_like(p->grad);
      r.set_category(buffer, Category::optimizer_state);
      if (p->name >= 0) r.label(buffer, r.schedule.names[static_cast<std::size_t>(p->name)] + ".momentum_buffer");
      r.set_reason(buffer, "optimizer state, kept for the whole run");
      momentum_[p.get()] = std::move(buffer);
    }
    Tensor update;  // a name of the loop: the last matrix's lives until it is bound again
    for (const Tensor& p : parameters_) {
      if (!p->grad) continue;
      Tensor mixed = r.empty_like(p->grad);  // grad.lerp(buf, momentum)
      update = std::move(mixed);
      update = orthogonalized(r, update);
    }
  }

 private:
  static Tensor orthogonalized(Run& r, const Tensor& grad) {
    Tensor x = op::to(r, grad, DType::bfloat16);
    const bool tall = x->sizes[0] > x->sizes[1];
    if (tall) x = op::t(r, x);
    {
      Tensor length = norm(r, x);
      Tensor clamped = r.empty_like(length);
    }
    Tensor gram, update;  // named in the loop of PyTorch
    for (int i = 0; i < 5; ++i) {
      Tensor fresh = op::mm(r, x, op::t(r, x));
      gram = std::move(fresh);
      fresh = op::addmm(r, gram, gram, gram);
      update = std::move(fresh);
      fresh = op::addmm(r, x, update, x);
      x = std::move(fresh);
    }
    return tall ? op::t(r, x) : x;
  }

  TensorList parameters_;
  std::map<TensorBody*, Tensor> momentum_;
};

class Both : public Optimizer {
 public:
  Both(std::unique_ptr<Optimizer> first, std::unique_ptr<Optimizer> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  void step(Run& r) override {
    first_->step(r);
    second_->step(r);
  }

 private:
  std::unique_ptr<Optimizer> first_, second_;
};

}  // namespace

std::vector<ValueId> hidden_matrices(const Tape& tape) {
  std::set<ValueId> excluded;
  ValueId last;
  for (const Call& call : tape.calls) {
    const bool embedding = call.op == "aten::embedding";
    if (!embedding && call.op != "aten::linear") continue;
    for_each_value(call, [&](ValueId id) {
      const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (v.kind != ValueKind::parameter || v.sizes.size() != 2) return;
      const ValueId owner = v.same_storage_as.valid() ? v.same_storage_as : id;
      if (embedding)
        excluded.insert(owner);
      else
        last = owner;
    });
  }
  if (last.valid()) excluded.insert(last);
  std::vector<ValueId> out;
  for (ValueId id : tape.parameters) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    if (v.requires_grad && v.sizes.size() == 2 && !v.same_storage_as.valid() && !excluded.count(id)) out.push_back(id);
  }
  return out;
}

std::unique_ptr<Optimizer> make_muon(Run& r, const OptimizerSetup& setup, const TensorList& hidden,
                                     const TensorList& others) {
  check_optimizer(r.profile, {.kind = OptimizerKind::muon});
  if (setup.impl == OptimizerImpl::fused || setup.impl == OptimizerImpl::foreach)
    fail(ErrorKind::usage, "PyTorch has one implementation of Muon", setting(Field::optimizer_impl), "leave it out");
  if (hidden.empty())
    fail(ErrorKind::usage, "the model has no hidden matrices for Muon", setting(Field::optimizer, "muon"),
         "choose another optimizer, adamw for example");
  OptimizerSetup adamw = setup;
  adamw.kind = OptimizerKind::adamw;
  return std::make_unique<Both>(std::make_unique<Muon>(hidden), make_optimizer(r, adamw, others));
}

}  // namespace memplan
