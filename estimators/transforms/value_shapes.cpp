#include "estimators/transforms/value_shapes.h"

#include "estimators/runtime/torch/autograd/engine.h"
#include "estimators/runtime/torch/autograd/interpreter.h"

namespace memplan {

namespace {

/// Looks at the results of every call before their names are dropped.
struct Watch : CallHooks {
  Watch(const Tape& t, std::vector<std::optional<Dims>>& s) : tape(t), shapes(s) {}
  void before(Run&, Environment&, std::int32_t, Lasting) override {}
  void after(Run&, Environment& env, std::int32_t call) override {
    for (ValueId id : tape.calls[static_cast<std::size_t>(call)].outputs) {
      if (!id.valid()) continue;
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (v.is_tensor() && v.tensor()) shapes[static_cast<std::size_t>(id.index)] = v.tensor()->sizes;
    }
  }
  const Tape& tape;
  std::vector<std::optional<Dims>>& shapes;
};

/// What the tape's calls start from.
void fill(Run& run, const Tape& tape, Environment& env) {
  env.values.resize(tape.values.size());
  for (std::size_t i = 0; i < tape.values.size(); ++i) {
    const TapeValue& v = tape.values[i];
    if (v.kind == ValueKind::computed) continue;
    if (v.number) {
      env.values[i] = Value(*v.number);
      continue;
    }
    const Dims sizes(v.sizes);
    Tensor t = v.on_host ? run.host(sizes, v.dtype) : run.empty(sizes, v.dtype);
    t->requires_grad_leaf = run.grad_mode && v.kind == ValueKind::parameter && is_floating(v.dtype);
    env.values[i] = std::move(t);
  }
}

}  // namespace

std::vector<std::optional<Dims>> value_shapes(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  std::vector<std::optional<Dims>> shapes(tape.values.size());
  Run run(run_options(setup), device);
  run.grad_mode = false;  // nothing is checkpointed
  Environment env;
  fill(run, tape, env);
  for (std::size_t i = 0; i < tape.values.size(); ++i)
    if (const TapeValue& v = tape.values[i]; v.kind != ValueKind::computed && !v.number) shapes[i] = Dims(v.sizes);
  Watch watch(tape, shapes);
  env.hooks = &watch;
  run_forward(run, tape, env);
  return shapes;
}

void run_backward(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  Run run(run_options(setup), device);
  Environment env;
  fill(run, tape, env);
  run_forward(run, tape, env);
  TensorList roots, grads;
  for (ValueId id : tape.outputs) {
    if (!id.valid()) continue;
    const Value& v = env.values[static_cast<std::size_t>(id.index)];
    if (!v.is_tensor() || !v.tensor() || !v.tensor()->requires_grad()) continue;
    roots.push_back(v.tensor());
    grads.push_back(run.empty(v.tensor()->sizes, v.tensor()->dtype));
  }
  if (!roots.empty()) backward(run, roots, grads);
}

}  // namespace memplan
