#include "estimators/runtime/torch/step/optimizer.h"

#include <fmt/format.h>

#include <map>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"
#include "estimators/setup/optimizers.h"

namespace memplan {

namespace {

using Impl = OptimizerImpl;

/// A Python list: its items are let go from the last to the first (Objects/listobject.c, list_dealloc).
struct PyList : TensorList {
  PyList() = default;
  PyList(PyList&&) = default;
  PyList& operator=(PyList&&) = default;
  ~PyList() {
    while (!empty()) pop_back();
  }
};

/// Tensors of one dtype are updated together by foreach; every group is one pass of a loop in Python.
struct Base : Optimizer {
  Base(Run&, const OptimizerSetup& s, const TensorList& p) : setup(s), parameters(p) {}

  OptimizerSetup setup;
  TensorList parameters;

  void step(Run& r) override {
    r.phase = Phase::optimizer;
    r.scope = r.call = -1;
    ScopedValue<bool> no_grad(r.grad_mode, false);
    r.begin_op("optimizer.step");
    std::vector<std::pair<DType, std::vector<std::size_t>>> groups;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i]->grad) continue;
      init(r, i);
      all.push_back(i);
      const DType d = parameters[i]->dtype;
      auto it = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == d; });
      if (it == groups.end()) it = groups.insert(groups.end(), {d, {}});
      it->second.push_back(i);
    }
    if (setup.impl == Impl::loop) {
      for (std::size_t i : all) single(r, i);
      end_loop();
    } else if (setup.impl != Impl::fused) {
      for (auto& [dtype, group] : groups)
        foreach (r, group)
          ;
    }
  }

  virtual void init(Run&, std::size_t) {}
  virtual void foreach (Run&, const std::vector<std::size_t>& group) = 0;
  virtual void single(Run&, std::size_t) = 0;
  virtual void end_loop() {}

  Tensor state_like(Run& r, const Tensor& p, const char* name) { return mark(r, r.empty_like(p), p, name); }
  Tensor mark(Run& r, Tensor t, const Tensor& p, const char* name) {
    r.set_category(t, Category::optimizer_state);
    if (p->name >= 0) r.label(t, r.schedule.names[p->name] + "." + name);
    r.set_reason(t, "optimizer state, kept for the whole run");
    return t;
  }
  /// torch._foreach_* that returns new tensors: one per parameter of the group.
  PyList list_like(Run& r, const std::vector<std::size_t>& group) {
    PyList list;
    for (std::size_t i : group) list.push_back(r.empty_like(parameters[i]));
    return list;
  }
  /// weight decay that is not decoupled makes a copy of the gradients.
  PyList decayed(Run& r, const std::vector<std::size_t>& group) {
    PyList list;
    if (setup.weight_decay == 0) return list;
    for (std::size_t i : group) list.push_back(r.empty_like(parameters[i]->grad));
    return list;
  }
};

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

/// torch.optim.Adafactor: one tensor at a time unless foreach is asked for. Rows and columns instead of a full second
/// moment; the estimate and the update are temporaries of the parameter's size.
struct Adafactor : Base {
  using Base::Base;
  struct State {
    Tensor row, column, variance;
  };
  std::map<std::size_t, State> states;
  Tensor row_mean, column_mean, estimate, squared;

  void init(Run& r, std::size_t i) override {
    if (states.count(i)) return;
    const Tensor& p = parameters[i];
    State& s = states[i];
    if (p->rank() > 1) {
      Dims row = p->grad->sizes, column = p->grad->sizes;
      row[row.size() - 1] = 1;
      column[column.size() - 2] = 1;
      s.row = mark(r, r.empty(row, p->dtype), p, "row_var");
      s.column = mark(r, r.empty(column, p->dtype), p, "col_var");
    } else {
      s.variance = state_like(r, p, "variance");
    }
  }
  void single(Run& r, std::size_t i) override {
    const Tensor& p = parameters[i];
    const State& s = states[i];
    norm(r, p, {});
    if (p->rank() > 1) {
      row_mean = norm(r, p->grad, {-1});
      column_mean = norm(r, p->grad, {-2});
      estimate = op::matmul(r, s.row, s.column);
      {
        Tensor mean =
            call_op(r, "aten::mean.dim", {Value(s.row), Value(ValueList{Value(std::int64_t{-2})}), Value(true)})[0]
                .tensor();
      }
    } else {
      squared = r.empty_like(p);
      estimate = r.empty_like(p);
    }
    norm(r, estimate, {});
  }
  static Tensor norm(Run& r, const Tensor& x, std::initializer_list<std::int64_t> dims) {
    ValueList list;
    for (std::int64_t d : dims) list.emplace_back(d);
    return call_op(r, "aten::linalg_vector_norm",
                   {Value(x), Value(2.0), list.empty() ? Value() : Value(list), Value(!list.empty())})[0]
        .tensor();
  }
  void end_loop() override { row_mean.reset(), column_mean.reset(), estimate.reset(), squared.reset(); }
  void foreach (Run& r, const std::vector<std::size_t>& group) override { PyList estimates = list_like(r, group); }
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
  void foreach (Run& r, const std::vector<std::size_t>& group) override {
    for (std::size_t i : group) single(r, i);
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
  void foreach (Run&, const std::vector<std::size_t>&) override {}
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
  void foreach (Run&, const std::vector<std::size_t>&) override {}
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
      return std::make_unique<Adafactor>(r, s, parameters);
    case OptimizerKind::lion:
      return std::make_unique<Lion>(r, s, parameters);
    case OptimizerKind::adamw8bit:
      return std::make_unique<AdamW8bit>(r, s, parameters);
  }
  return nullptr;
}

}  // namespace memplan
