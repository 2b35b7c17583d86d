#include "estimators/runtime/torch/step/loss.h"

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {
Tensor first_floating(const ValueList& outputs) {
  for (const Value& v : outputs) {
    if (v.is_tensor() && v.tensor() && is_floating(v.tensor()->dtype)) return v.tensor();
    if (v.is_list()) {
      if (Tensor t = first_floating(v.list())) return t;
    }
  }
  return {};
}
}  // namespace

TargetShape target_shape(const ValueList& outputs, const TrainingSetup& setup) {
  const Tensor y = first_floating(outputs);
  if (!y)
    fail_input("the model has no floating output to take a loss of", {}, "use " + setting(Field::mode, "inference"));
  TargetShape s;
  s.loss = setup.loss;
  if (s.loss == Loss::automatic) s.loss = y->rank() >= 2 ? Loss::cross_entropy : Loss::sum;
  if (y->rank() == 0) s.loss = Loss::sum;
  if (s.loss == Loss::mse) {
    s.sizes = y->sizes;
    s.dtype = y->dtype;
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

Tensor compute_loss(Run& r, const ValueList& outputs, const Tensor& target, const TargetShape& s) {
  Tensor y = first_floating(outputs);
  auto run = [&](const char* op, std::vector<Value> args) {
    r.begin_op(op);
    return call_op(r, op, std::move(args))[0].tensor();
  };
  switch (s.loss) {
    case Loss::mse:
      return run("aten::mse_loss", {y, target});
    case Loss::cross_entropy: {
      if (y->rank() == 2 || y->rank() == 4) return run("aten::cross_entropy_loss", {y, target});
      // Megatron-LM's model takes the loss of every token itself; the mean is taken of what its mask leaves.
      if (is_megatron(r.setup.parallel.sharding) && y->rank() == 3 && r.grad_mode)
        return run("aten::mean", {run("memplan::vocab_cross_entropy", {y, target})});
      Tensor flat = op::flatten(r, y, 0, -2);
      Tensor classes = op::flatten(r, target, 0, -1);
      return run("aten::cross_entropy_loss", {flat, classes});
    }
    case Loss::automatic:
    case Loss::sum:
      return y->rank() == 0 ? y : run("aten::sum", {y});
  }
  return {};
}

}  // namespace memplan
