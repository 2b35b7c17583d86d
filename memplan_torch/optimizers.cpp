#include "memplan_torch/optimizers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>

#include "estimators/setup/optimizers.h"
#include "memplan_torch/commands.h"

namespace memplan::torch_side {

namespace {

using Impl = OptimizerImpl;
constexpr double lr = 0.001;

at::TensorOptions on(const at::Tensor& t, c10::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(t.device());
}

/// Optimizer.zero-ing of state: torch.zeros_like(p, memory_format=torch.preserve_format)
at::Tensor state_like(const at::Tensor& p) { return at::zeros_like(p, {}, at::MemoryFormat::Preserve); }

/// Optimizer._group_tensors_by_device_and_dtype: one group per dtype, in order of appearance.
std::vector<std::vector<std::size_t>> groups_of(const Tensors& parameters) {
  std::vector<std::pair<c10::ScalarType, std::vector<std::size_t>>> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].grad().defined()) continue;
    const auto dtype = parameters[i].scalar_type();
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == dtype; });
    if (it == groups.end()) it = groups.insert(groups.end(), {dtype, {}});
    it->second.push_back(i);
  }
  std::vector<std::vector<std::size_t>> out;
  for (auto& g : groups) out.push_back(std::move(g.second));
  return out;
}

struct Base : Optimizer {
  Base(const OptimizerSetup& s, const Tensors& p) : setup(s), parameters(p) {}

  OptimizerSetup setup;
  Tensors parameters;

  PyTensors params(const std::vector<std::size_t>& group) const {
    PyTensors out;
    for (std::size_t i : group) out.push_back(parameters[i]);
    return out;
  }
  PyTensors grads(const std::vector<std::size_t>& group) const {
    PyTensors out;
    for (std::size_t i : group) out.push_back(parameters[i].grad());
    return out;
  }
  static PyTensors pick(const std::map<std::size_t, at::Tensor>& state, const std::vector<std::size_t>& group) {
    PyTensors out;
    for (std::size_t i : group) out.push_back(state.at(i));
    return out;
  }
  /// Weight decay that is not decoupled: new gradients.
  PyTensors decayed(PyTensors gradients, const PyTensors& p) const {
    if (setup.weight_decay == 0) return gradients;
    return at::_foreach_add(gradients, p, setup.weight_decay);
  }
  at::Tensor decayed(const at::Tensor& gradient, const at::Tensor& p) const {
    return setup.weight_decay == 0 ? gradient : gradient.add(p, setup.weight_decay);
  }

  void step() override {
    c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].grad().defined()) init(i);
    if (setup.impl == Impl::loop) {
      for (std::size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].grad().defined()) single(i);
      end_loop();
      return;
    }
    for (const auto& group : groups_of(parameters)) setup.impl == Impl::fused ? fused(group) : foreach (group);
  }

  virtual void init(std::size_t) {}
  virtual void foreach (const std::vector<std::size_t>& group) = 0;
  virtual void fused(const std::vector<std::size_t>&) {
    throw Refusal("usage", "PyTorch has no fused version of this optimizer", "--optimizer-impl", "use foreach or loop");
  }
  virtual void single(std::size_t) = 0;
  /// The loop's Python locals go when the function returns.
  virtual void end_loop() {}
};

struct Sgd : Base {
  using Base::Base;
  std::map<std::size_t, at::Tensor> buffers;
  at::Tensor grad_local;

  void foreach (const std::vector<std::size_t>& group) override {
    PyTensors p = params(group);
    PyTensors g = decayed(grads(group), p);
    if (setup.momentum == 0) return at::_foreach_add_(p, g, -lr);
    const bool all = std::all_of(group.begin(), group.end(), [&](std::size_t i) { return buffers.count(i); });
    if (all) {
      PyTensors b = pick(buffers, group);
      at::_foreach_mul_(b, setup.momentum);
      at::_foreach_add_(b, g, 1.0);
    } else {
      for (std::size_t k = 0; k < group.size(); ++k) {
        auto& b = buffers[group[k]];
        if (b.defined())
          b.mul_(setup.momentum).add_(g[k], 1.0);
        else
          b = g[k].detach().clone();
      }
    }
    PyTensors b = pick(buffers, group);
    if (setup.nesterov) {
      at::_foreach_add_(g, b, setup.momentum);
      at::_foreach_add_(p, g, -lr);
    } else {
      // device_grads = bufs: copies of decayed gradients go here.
      g.clear_backwards();
      at::_foreach_add_(p, b, -lr);
    }
  }
  void init(std::size_t i) override {
    if (setup.impl == Impl::fused && setup.momentum != 0 && !buffers.count(i))
      buffers[i] = at::empty_like(parameters[i].grad());
  }
  void fused(const std::vector<std::size_t>& group) override {
    PyTensors p = params(group), g = grads(group);
    PyTensors b = setup.momentum == 0 ? PyTensors() : pick(buffers, group);
    at::_fused_sgd_(p, g, b, setup.weight_decay, setup.momentum, lr, 0.0, setup.nesterov, false, !stepped);
    stepped = true;
  }
  bool stepped = false;
  void single(std::size_t i) override {
    const at::Tensor& p = parameters[i];
    at::Tensor g = decayed(p.grad(), p);
    if (setup.momentum != 0) {
      auto& b = buffers[i];
      if (!b.defined())
        b = g.detach().clone();
      else
        b.mul_(setup.momentum).add_(g, 1.0);
      g = setup.nesterov ? g.add(b, setup.momentum) : b;
    }
    grad_local = std::move(g);
    at::Tensor(p).add_(grad_local, -lr);
  }
  void end_loop() override { grad_local.reset(); }
};

struct Adam : Base {
  using Base::Base;
  const bool decoupled = setup.kind == OptimizerKind::adamw;
  std::map<std::size_t, at::Tensor> steps, averages, squares, maxima;
  at::Tensor denominator, grad_local;

  void init(std::size_t i) override {
    if (steps.count(i)) return;
    const at::Tensor& p = parameters[i];
    steps[i] = setup.impl == Impl::fused ? at::zeros({}, on(p, at::kFloat))
                                         : at::zeros({}, at::TensorOptions().dtype(at::kFloat));
    averages[i] = state_like(p);
    squares[i] = state_like(p);
    if (setup.amsgrad) maxima[i] = state_like(p);
  }
  void foreach (const std::vector<std::size_t>& group) override {
    PyTensors p = params(group), g = grads(group), m = pick(averages, group), v = pick(squares, group),
              t = pick(steps, group);
    at::_foreach_add_(t, at::scalar_tensor(1.0), 1.0);
    if (setup.weight_decay != 0 && decoupled)
      at::_foreach_mul_(p, 1 - lr * setup.weight_decay);
    else
      g = decayed(std::move(g), p);
    at::_foreach_lerp_(m, g, 0.1);
    at::_foreach_mul_(v, 0.999);
    at::_foreach_addcmul_(v, g, g, 0.001);
    g.clear_backwards();
    PyTensors roots;
    if (setup.amsgrad) {
      PyTensors x = pick(maxima, group);
      at::_foreach_maximum_(x, v);
      roots = at::_foreach_sqrt(x);
    } else {
      roots = at::_foreach_sqrt(v);
    }
    at::_foreach_div_(roots, std::vector<at::Scalar>(roots.size(), 0.5));
    at::_foreach_add_(roots, 1e-8);
    at::_foreach_addcdiv_(p, m, roots, std::vector<at::Scalar>(roots.size(), -lr));
  }
  void fused(const std::vector<std::size_t>& group) override {
    PyTensors p = params(group), g = grads(group), m = pick(averages, group), v = pick(squares, group),
              t = pick(steps, group);
    PyTensors x = setup.amsgrad ? pick(maxima, group) : PyTensors();
    at::_foreach_add_(t, 1);
    if (decoupled)
      at::_fused_adamw_(p, g, m, v, x, t, lr, 0.9, 0.999, setup.weight_decay, 1e-8, setup.amsgrad, false);
    else
      at::_fused_adam_(p, g, m, v, x, t, lr, 0.9, 0.999, setup.weight_decay, 1e-8, setup.amsgrad, false);
  }
  void single(std::size_t i) override {
    at::Tensor p = parameters[i];
    grad_local = p.grad();
    steps[i].add_(1);
    if (setup.weight_decay != 0 && decoupled)
      p.mul_(1 - lr * setup.weight_decay);
    else
      grad_local = decayed(grad_local, p);
    averages[i].lerp_(grad_local, 0.1);
    squares[i].mul_(0.999).addcmul_(grad_local, grad_local, 0.001);
    if (setup.amsgrad) at::maximum_out(maxima[i], maxima[i], squares[i]);
    denominator = ((setup.amsgrad ? maxima[i] : squares[i]).sqrt() / 0.5).add_(1e-8);
    p.addcdiv_(averages[i], denominator, -lr);
  }
  void end_loop() override { grad_local.reset(), denominator.reset(); }
};

struct Adagrad : Base {
  std::map<std::size_t, at::Tensor> sums, steps;
  at::Tensor deviation, grad_local;
  Adagrad(const OptimizerSetup& s, const Tensors& p) : Base(s, p) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      steps[i] = s.impl == Impl::fused ? at::zeros({}, on(p[i], at::kFloat))
                                       : at::zeros({}, at::TensorOptions().dtype(at::kFloat));
      sums[i] = at::full_like(p[i], 0.0, {}, at::MemoryFormat::Preserve).detach();
    }
  }
  void foreach (const std::vector<std::size_t>& group) override {
    PyTensors p = params(group), s = pick(sums, group), t = pick(steps, group);
    at::_foreach_add_(t, at::scalar_tensor(1.0), 1.0);
    PyTensors g = decayed(grads(group), p);
    const std::vector<at::Scalar> rates(g.size(), -lr);
    at::_foreach_addcmul_(s, g, g, 1);
    PyTensors roots = at::_foreach_sqrt(s);
    at::_foreach_add_(roots, 1e-10);
    if (setup.weight_decay != 0) {
      at::_foreach_mul_(g, rates);
      at::_foreach_addcdiv_(p, g, roots, 1);
    } else {
      PyTensors numerators = at::_foreach_mul(g, rates);
      at::_foreach_addcdiv_(p, numerators, roots, 1);
    }
  }
  void fused(const std::vector<std::size_t>& group) override {
    PyTensors p = params(group), g = grads(group), s = pick(sums, group), t = pick(steps, group);
    at::_foreach_add_(t, 1);
    at::_fused_adagrad_(p, g, s, t, lr, 0.0, setup.weight_decay, 1e-10, false);
  }
  void single(std::size_t i) override {
    at::Tensor p = parameters[i];
    steps[i].add_(1);
    grad_local = decayed(p.grad(), p);
    sums[i].addcmul_(grad_local, grad_local, 1);
    deviation = sums[i].sqrt().add_(1e-10);
    p.addcdiv_(grad_local, deviation, -lr);
  }
  void end_loop() override { grad_local.reset(), deviation.reset(); }
};

struct RmsProp : Base {
  using Base::Base;
  std::map<std::size_t, at::Tensor> steps, squares, buffers;
  at::Tensor average, grad_local;

  void init(std::size_t i) override {
    if (steps.count(i)) return;
    steps[i] = at::zeros({}, at::TensorOptions().dtype(at::kFloat));
    squares[i] = state_like(parameters[i]);
    if (setup.momentum > 0) buffers[i] = state_like(parameters[i]);
  }
  void foreach (const std::vector<std::size_t>& group) override {
    PyTensors p = params(group), s = pick(squares, group), t = pick(steps, group);
    at::_foreach_add_(t, at::scalar_tensor(1.0), 1.0);
    PyTensors g = decayed(grads(group), p);
    at::_foreach_mul_(s, 0.99);
    at::_foreach_addcmul_(s, g, g, 0.01);
    PyTensors roots = at::_foreach_sqrt(s);
    at::_foreach_add_(roots, 1e-8);
    if (setup.momentum > 0) {
      PyTensors b = pick(buffers, group);
      at::_foreach_mul_(b, setup.momentum);
      at::_foreach_addcdiv_(b, g, roots, 1);
      at::_foreach_add_(p, b, -lr);
    } else {
      at::_foreach_addcdiv_(p, g, roots, -lr);
    }
  }
  void single(std::size_t i) override {
    at::Tensor p = parameters[i];
    steps[i].add_(1);
    grad_local = decayed(p.grad(), p);
    squares[i].mul_(0.99).addcmul_(grad_local, grad_local, 0.01);
    average = squares[i].sqrt();
    average.add_(1e-8);
    if (setup.momentum > 0) {
      buffers[i].mul_(setup.momentum).addcdiv_(grad_local, average, 1);
      p.add_(buffers[i], -lr);
    } else {
      p.addcdiv_(grad_local, average, -lr);
    }
  }
  void end_loop() override { grad_local.reset(), average.reset(); }
};

/// The loop only: what Adafactor does unless foreach is asked for.
struct Adafactor : Base {
  using Base::Base;
  std::map<std::size_t, at::Tensor> rows, columns, variances, steps;
  at::Tensor row_mean, column_mean, estimate, squared, update;

  void init(std::size_t i) override {
    if (steps.count(i)) return;
    const at::Tensor& g = parameters[i].grad();
    steps[i] = at::zeros({}, at::TensorOptions().dtype(at::kFloat));
    if (g.dim() > 1) {
      auto row = g.sizes().vec(), column = row;
      row.back() = 1;
      column[column.size() - 2] = 1;
      rows[i] = g.new_zeros(row);
      columns[i] = g.new_zeros(column);
    } else {
      variances[i] = at::zeros_like(g, {}, at::MemoryFormat::Preserve);
    }
  }
  void foreach (const std::vector<std::size_t>&) override {
    throw Refusal("usage", "dry runs do not have the foreach version of Adafactor", "--optimizer-impl foreach",
                  "use --optimizer-impl loop, which is PyTorch's default for it");
  }
  void single(std::size_t i) override {
    at::Tensor p = parameters[i];
    const at::Tensor g = p.grad();
    steps[i].add_(1);
    at::linalg_vector_norm(p, 2).item();
    if (setup.weight_decay != 0) p.mul_(1 - lr * setup.weight_decay);
    if (g.dim() > 1) {
      row_mean = at::linalg_vector_norm(g, 2, at::IntArrayRef{-1}, true).square_().div_(g.size(-1));
      rows[i].lerp_(row_mean, 0.5);
      column_mean = at::linalg_vector_norm(g, 2, at::IntArrayRef{-2}, true).square_().div_(g.size(-2));
      columns[i].lerp_(column_mean, 0.5);
      estimate = at::matmul(rows[i], columns[i]);
      estimate.div_(rows[i].mean(at::IntArrayRef{-2}, true).clamp_(1e-30));
    } else {
      squared = g * g;
      variances[i].lerp_(squared, 0.5);
      estimate = variances[i].clone();
    }
    update = estimate.clamp_(1e-30).rsqrt_();
    update.mul_(g);
    at::linalg_vector_norm(update, 2).item();
    p.add_(update, -lr);
  }
  void end_loop() override { row_mean.reset(), column_mean.reset(), estimate.reset(), squared.reset(), update.reset(); }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& given, const Tensors& parameters) {
  OptimizerSetup s = given;
  if (s.impl == Impl::automatic) s.impl = optimizer_model(s.kind).foreach ? Impl::foreach : Impl::loop;
  switch (s.kind) {
    case OptimizerKind::none:
      return nullptr;
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(s, parameters);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return std::make_unique<Adam>(s, parameters);
    case OptimizerKind::adagrad:
      return std::make_unique<Adagrad>(s, parameters);
    case OptimizerKind::rmsprop:
      return std::make_unique<RmsProp>(s, parameters);
    case OptimizerKind::adafactor:
      return std::make_unique<Adafactor>(s, parameters);
    case OptimizerKind::adafactor_hf:
      return make_transformers_adafactor(parameters);
    case OptimizerKind::lion:
      return make_lion(s, parameters);
    default:
      throw Refusal("usage", "a dry run has no such optimizer", "--optimizer",
                    "use adamw, adam, sgd, adagrad, rmsprop, adafactor, adafactor-hf, lion, muon or none");
  }
}

void clip_grad_norm(const Tensors& parameters) {
  c10::NoGradGuard no_grad;
  PyTensors g;
  for (const at::Tensor& p : parameters)
    if (p.grad().defined()) g.push_back(p.grad());
  if (g.empty()) return;
  at::Tensor total;
  {
    PyTensors norms = at::_foreach_norm(g, 2.0);
    total = at::linalg_vector_norm(at::stack(norms), 2.0);
  }
  // max_norm / (total_norm + 1e-6) is a reciprocal and a product.
  at::Tensor coefficient = (total + 1e-6).reciprocal() * 1.0;
  at::Tensor clamped = at::clamp(coefficient, std::nullopt, at::Scalar(1.0));
  at::_foreach_mul_(g, clamped);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  if (!scale_.defined()) {
    scale_ = at::full({}, 65536.0, on(loss, at::kFloat));
    growth_ = at::full({}, 0, on(loss, at::kInt));
  }
  return loss * scale_;
}

void GradScaler::unscale(const Tensors& parameters) {
  c10::NoGradGuard no_grad;
  // self._scale.double().reciprocal().float(): Python lets go of each when the next is there.
  at::Tensor wide = scale_.to(at::kDouble);
  wide = wide.reciprocal();
  at::Tensor inverse = wide.to(at::kFloat);
  wide.reset();
  at::Tensor master = at::full({}, 0.0, on(scale_, at::kFloat));
  std::vector<std::pair<c10::ScalarType, Tensors>> groups;
  for (const at::Tensor& p : parameters) {
    if (!p.grad().defined()) continue;
    const auto dtype = p.grad().scalar_type();
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == dtype; });
    if (it == groups.end()) it = groups.insert(groups.end(), {dtype, {}});
    it->second.push_back(p.grad());
  }
  // _MultiDeviceReplicator.get copies for every device, the own one, too.
  at::Tensor inverse_copy;
  for (auto& [dtype, g] : groups) {
    if (!inverse_copy.defined()) {
      found_inf_ = master.to(master.device(), master.scalar_type(), true, true);
      inverse_copy = inverse.to(inverse.device(), inverse.scalar_type(), true, true);
    }
    at::_amp_foreach_non_finite_check_and_unscale_(g, found_inf_, inverse_copy);
  }
}

bool GradScaler::all_finite() const { return !found_inf_.defined() || found_inf_.item<float>() == 0; }

void GradScaler::update() {
  if (found_inf_.defined()) at::_amp_update_scale_(scale_, growth_, found_inf_, 2.0, 0.5, 2000);
  found_inf_.reset();
}

}  // namespace memplan::torch_side
