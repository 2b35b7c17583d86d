#include "estimators/runtime/torch/step/optimizer.h"

#include <fmt/format.h>

#include <map>

#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/adafactor.h"
#include "estimators/runtime/torch/step/looped_optimizer.h"
#include "estimators/setup/field.h"
#include "estimators/setup/optimizers.h"

namespace memplan {

namespace {

using Impl = OptimizerImpl;
using Base = LoopedOptimizer;

struct Sgd : Base {
  using Base::Base;
  std::map<std::size_t, Tensor> momentum;

  void foreach (Run& r, const std::vector<std::size_t>& group) override {
    PyList grads = decayed(r, group);
    if (setup.momentum == 0) return;
    for (std::size_t k = 0; k < group.size(); ++k) {
      const std::size_t i = group[k];
      if (!momentum.count(i))
        momentum[i] = state_like(r, grads.empty() ? parameters[i]->grad : grads[k], "momentum_buffer");
    }
  }
  void init(Run& r, std::size_t i) override {
    // _fused_sgd makes the buffers with empty_like for all parameters when the first step finds none.
    if (setup.impl == Impl::fused && setup.momentum != 0 && !momentum.count(i))
      momentum[i] = state_like(r, parameters[i], "momentum_buffer");
  }
  void single(Run& r, std::size_t i) override {
    const Tensor& p = parameters[i];
    Tensor grad = setup.weight_decay != 0 ? r.empty_like(p->grad) : p->grad;
    if (setup.momentum != 0) {
      if (!momentum.count(i)) momentum[i] = mark(r, r.empty_like(grad), p, "momentum_buffer");
      if (setup.nesterov) previous = r.empty_like(grad);
    }
  }
  void end_loop() override { previous.reset(); }
  Tensor previous;
};

struct Adam : Base {
  using Base::Base;
  bool decoupled = true;  // AdamW
  struct State {
    Tensor step, average, square, maximum;
  };
  std::map<std::size_t, State> states;
  Tensor denominator;  // Python local of the loop, alive until rebound

  void init(Run& r, std::size_t i) override {
    if (states.count(i)) return;
    const Tensor& p = parameters[i];
    State& s = states[i];
    if (setup.impl == Impl::fused) s.step = mark(r, r.empty({}, DType::float32), p, "step");
    s.average = state_like(r, p, "exp_avg");
    s.square = state_like(r, p, "exp_avg_sq");
    if (setup.amsgrad) s.maximum = state_like(r, p, "max_exp_avg_sq");
  }
  void foreach (Run& r, const std::vector<std::size_t>& group) override {
    { PyList grads = decoupled ? PyList{} : decayed(r, group); }
    PyList roots = list_like(r, group);  // torch._foreach_sqrt(exp_avg_sqs)
  }
  void single(Run& r, std::size_t i) override {
    const Tensor& p = parameters[i];
    // A replicated DTensor gradient of a cut parameter (memplan::vocab_embedding) is cut anew for each op that reads
    // it.
    if (p->grad->storage->bytes > p->storage->bytes) {
      { Tensor lerp = r.empty_like(p->grad); }
      Tensor first = r.empty_like(p->grad), second = r.empty_like(p->grad);
    }
    Tensor grad = !decoupled && setup.weight_decay != 0 ? r.empty_like(p->grad) : Tensor();
    // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)
    Tensor root = r.empty_like(p);
    Tensor quotient = r.empty_like(p);
    root.reset();
    denominator = std::move(quotient);
  }
  void end_loop() override { denominator.reset(); }
};

struct Adagrad : Base {
  TensorList sums, steps;
  Adagrad(Run& r, const OptimizerSetup& s, const TensorList& p) : Base(r, s, p) {
    for (const Tensor& t : p) {
      if (s.impl == Impl::fused) steps.push_back(mark(r, r.empty({}, DType::float32), t, "step"));
      sums.push_back(state_like(r, t, "sum"));
    }
  }
  void foreach (Run& r, const std::vector<std::size_t>& group) override {
    PyList grads = decayed(r, group);
    PyList roots = list_like(r, group);
    PyList numerators = grads.empty() ? list_like(r, group) : PyList{};
  }
  void single(Run& r, std::size_t i) override {
    Tensor grad = setup.weight_decay != 0 ? r.empty_like(parameters[i]->grad) : Tensor();
    denominator = r.empty_like(parameters[i]);
  }
  void end_loop() override { denominator.reset(); }
  Tensor denominator;
};

struct RmsProp : Base {
  using Base::Base;
  struct State {
    Tensor square, momentum;
  };
  std::map<std::size_t, State> states;

  void init(Run& r, std::size_t i) override {
    if (states.count(i)) return;
    State& s = states[i];
    s.square = state_like(r, parameters[i], "square_avg");
    if (setup.momentum > 0) s.momentum = state_like(r, parameters[i], "momentum_buffer");
  }
  void foreach (Run& r, const std::vector<std::size_t>& group) override {
    PyList grads = decayed(r, group);
    PyList roots = list_like(r, group);
  }
  void single(Run& r, std::size_t i) override {
    Tensor grad = setup.weight_decay != 0 ? r.empty_like(parameters[i]->grad) : Tensor();
    average = r.empty_like(parameters[i]);
  }
  void end_loop() override { average.reset(); }
  Tensor average;
};

/// The Lion of the lion_pytorch package (0.2): one tensor at a time, its state made on the way, and
/// exp_avg.clone().mul_(beta).add(grad).sgn_() beside it.
struct Lion : Base {
  using Base::Base;
  std::map<std::size_t, Tensor> averages;
  void single(Run& r, std::size_t i) override {
    if (!averages.count(i)) averages[i] = state_like(r, parameters[i], "exp_avg");
    Tensor scaled = r.empty_like(parameters[i]);
    Tensor update = r.empty_like(parameters[i]);
    scaled.reset();
  }
};

/// bitsandbytes' AdamW8bit: states of one byte per element with a fp32 scale per block of 256; small tensors
/// (fewer than 4096 elements) keep fp32 states (bitsandbytes/optim/optimizer.py).
struct AdamW8bit : Base {
  using Base::Base;
  struct State {
    Tensor first, second, first_scale, second_scale;
  };
  std::map<std::size_t, State> states;
  Tensor maps[2];

  void init(Run& r, std::size_t i) override {
    if (states.count(i)) return;
    const Tensor& p = parameters[i];
    State& s = states[i];
    const std::int64_t n = p->numel();
    if (n < 4096) {
      s.first = mark(r, r.empty(p->sizes, DType::float32), p, "state1");
      s.second = mark(r, r.empty(p->sizes, DType::float32), p, "state2");
      return;
    }
    for (int k = 0; k < 2; ++k)
      if (!maps[k]) maps[k] = mark(r, r.empty({256}, DType::float32), p, "qmap");
    const std::int64_t blocks = (n + 255) / 256;
    s.first = mark(r, r.empty(p->sizes, DType::uint8), p, "state1");
    s.second = mark(r, r.empty(p->sizes, DType::uint8), p, "state2");
    s.first_scale = mark(r, r.empty({blocks}, DType::float32), p, "absmax1");
    s.second_scale = mark(r, r.empty({blocks}, DType::float32), p, "absmax2");
  }
  void single(Run&, std::size_t) override {}
};

struct DeepSpeedAdam : Base {
  explicit DeepSpeedAdam(Run& r, const TensorList& p)
      : Base(r, {.kind = OptimizerKind::adamw, .impl = Impl::fused}, p) {}

  std::map<std::size_t, std::pair<Tensor, Tensor>> moments;

  void init(Run& r, std::size_t i) override {
    if (moments.count(i)) return;
    auto& [first, second] = moments[i];
    first = state_like(r, parameters[i], "exp_avg");
    second = state_like(r, parameters[i], "exp_avg_sq");
  }
  void single(Run&, std::size_t) override {}
};

}  // namespace

std::unique_ptr<Optimizer> make_deepspeed_adam(Run& run, const TensorList& parameters) {
  return std::make_unique<DeepSpeedAdam>(run, parameters);
}

void check_optimizer(const TorchProfile& profile, const OptimizerSetup& s) {
  if (profile.optimizer.absent.count(s.kind))
    fail(ErrorKind::usage, fmt::format("{} has no {}", profile.name(), optimizer_model(s.kind).python),
         setting(Field::optimizer), "choose another optimizer or a newer version of PyTorch");
  if (s.impl == Impl::fused && !profile.optimizer.fused.count(s.kind))
    fail(ErrorKind::usage, fmt::format("{} has no fused version of this optimizer", profile.name()),
         setting(Field::optimizer_impl), "use foreach or loop");
}

std::unique_ptr<Optimizer> make_optimizer(Run& r, const OptimizerSetup& given, const TensorList& parameters) {
  OptimizerSetup s = given;
  const OptimizerDefaults& defaults = r.profile.optimizer;
  check_optimizer(r.profile, s);
  if (s.impl == Impl::automatic) {
    s.impl = optimizer_model(s.kind).one_by_one || defaults.one_by_one.count(s.kind) ? Impl::loop : Impl::foreach;
  }
  r.begin_op("optimizer");
  switch (s.kind) {
    case OptimizerKind::none:
    case OptimizerKind::muon:
      return nullptr;  // muon.h
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(r, s, parameters);
    case OptimizerKind::adam:
    case OptimizerKind::adamw: {
      auto adam = std::make_unique<Adam>(r, s, parameters);
      adam->decoupled = s.kind == OptimizerKind::adamw;
      return adam;
    }
    case OptimizerKind::adagrad:
      return std::make_unique<Adagrad>(r, s, parameters);
    case OptimizerKind::rmsprop:
      return std::make_unique<RmsProp>(r, s, parameters);
    case OptimizerKind::adafactor:
      return make_adafactor(r, s, parameters);
    case OptimizerKind::adafactor_hf:
      return make_transformers_adafactor(r, s, parameters);
    case OptimizerKind::lion:
      return std::make_unique<Lion>(r, s, parameters);
    case OptimizerKind::adamw8bit:
      return std::make_unique<AdamW8bit>(r, s, parameters);
  }
  return nullptr;
}

}  // namespace memplan
