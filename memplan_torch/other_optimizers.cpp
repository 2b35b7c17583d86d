// Optimizers beside those of torch.optim that walk all parameters alike: Muon with AdamW, transformers' Adafactor, the
// Lion of lion_pytorch, and any of them on copies of the parameters in host memory.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <unordered_map>

#include "memplan_torch/optimizers.h"

namespace memplan::torch_side {

namespace {

/// lion_pytorch 0.2, update_fn.
class Lion : public Optimizer {
 public:
  Lion(const OptimizerSetup& setup, const Tensors& parameters)
      : decay_(setup.weight_decay), parameters_(parameters), averages_(parameters.size()) {}

  void step() override {
    c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor p = parameters_[i], g = p.grad();
      if (!g.defined()) continue;
      if (!averages_[i].defined()) averages_[i] = at::zeros_like(p);
      p.mul_(1 - lr * decay_);
      const at::Tensor update = averages_[i].clone().mul_(0.9).add(g, 1 - 0.9).sgn_();
      p.add_(update, -lr);
      averages_[i].mul_(0.99).add_(g, 1 - 0.99);
    }
  }

 private:
  static constexpr double lr = 1e-4;
  double decay_;
  Tensors parameters_, averages_;
};

/// transformers.Adafactor (optimization.py) without scale_parameter and first moment. Locals of its step are names of
/// the loop.
class TransformersAdafactor : public Optimizer {
 public:
  explicit TransformersAdafactor(const Tensors& parameters) : parameters_(parameters), states_(parameters.size()) {}

  void step() override {
    c10::NoGradGuard no_grad;
    at::Tensor grad, weight, update;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& p = parameters_[i];
      if (!p.grad().defined()) continue;
      grad = p.grad();
      grad = in_float32(grad);
      State& s = states_[i];
      if (!s.rms.defined()) start(s, grad);
      weight = p;
      weight = in_float32(weight);
      s.rms = root_mean_square(weight);
      update = grad.pow(2).add(1e-30);
      if (s.row.defined()) {
        s.row.mul_(0.5).add_(update.mean(at::IntArrayRef{-1}), 0.5);
        s.column.mul_(0.5).add_(update.mean(at::IntArrayRef{-2}), 0.5);
        update = factored(s);
        update.mul_(grad);
      } else {
        s.squares.mul_(0.5).add_(update, 0.5);
        update = s.squares.rsqrt().mul_(grad);
      }
      update.div_(root_mean_square(update).div(1.0).clamp_(1.0));
      update.mul_(lr);
      weight.add_(update.neg());
      if (!weight.is_same(p)) p.copy_(weight);
    }
  }

 private:
  struct State {
    at::Tensor row, column, squares, rms;
  };
  static constexpr double lr = 1e-3;

  static at::Tensor in_float32(const at::Tensor& t) {
    return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16 ? t.to(at::kFloat) : t;
  }
  static at::Tensor root_mean_square(const at::Tensor& t) {
    return at::linalg_vector_norm(t, 2).div(std::sqrt(static_cast<double>(t.numel())));
  }
  static void start(State& s, const at::Tensor& grad) {
    if (grad.dim() < 2) {
      s.squares = at::zeros_like(grad);
      return;
    }
    auto row = grad.sizes().vec(), column = row;
    row.pop_back();
    column.erase(column.end() - 2);
    s.row = at::zeros(row).to(grad);
    s.column = at::zeros(column).to(grad);
  }
  static at::Tensor factored(const State& s) {
    const at::Tensor rows = s.row.div(s.row.mean(at::IntArrayRef{-1}, true)).rsqrt_().unsqueeze(-1);
    const at::Tensor columns = s.column.unsqueeze(-2).rsqrt();
    return at::mul(rows, columns);
  }

  Tensors parameters_;
  std::vector<State> states_;
};

/// _zeropower_via_newtonschulz of torch/optim/_muon.py: its locals go when it returns.
at::Tensor orthogonalized(const at::Tensor& gradient) {
  at::Tensor x = gradient.to(at::kBFloat16);
  const bool tall = gradient.size(0) > gradient.size(1);
  if (tall) x = x.t();
  x.div_(at::linalg_vector_norm(x, 2).clamp(1e-7));
  at::Tensor gram, update;
  for (int i = 0; i < 5; ++i) {
    gram = at::matmul(x, x.t());
    update = at::addmm(gram, gram, gram, -4.7750, 2.0315);
    x = at::addmm(x, update, x, 3.4445, 1);
  }
  return tall ? x.t() : x;
}

/// torch.optim.Muon with its defaults.
class Muon : public Optimizer {
 public:
  explicit Muon(const Tensors& matrices) : matrices_(matrices) {}

  void step() override {
    c10::NoGradGuard no_grad;
    for (const at::Tensor& p : matrices_)
      if (p.grad().defined() && !momentum_.count(p.unsafeGetTensorImpl()))
        momentum_[p.unsafeGetTensorImpl()] = at::zeros_like(p.grad(), {}, at::MemoryFormat::Preserve);
    at::Tensor update;  // a name of the loop
    for (const at::Tensor& p : matrices_) {
      if (!p.grad().defined()) continue;
      const at::Tensor& buffer = momentum_.at(p.unsafeGetTensorImpl());
      buffer.lerp_(p.grad(), 1 - 0.95);
      update = p.grad().lerp(buffer, 0.95);
      update = orthogonalized(update);
      p.mul_(1 - 1e-3 * 0.1);
      p.add_(update, -1e-3);
    }
  }

 private:
  Tensors matrices_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> momentum_;
};

class Both : public Optimizer {
 public:
  Both(std::unique_ptr<Optimizer> first, std::unique_ptr<Optimizer> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  void step() override {
    first_->step();
    second_->step();
  }

 private:
  std::unique_ptr<Optimizer> first_, second_;
};

/// The device's part of a step on the host: each gradient goes there and is dropped, and updated weights come back. The
/// arithmetic in between touches no device and is left out.
class OnHost : public Optimizer {
 public:
  explicit OnHost(const Tensors& parameters) : parameters_(parameters) {}

  void step() override {
    for (const at::Tensor& p : parameters_) {
      if (!p.grad().defined()) continue;
      const at::Tensor host = p.grad().to(at::kCPU);
      p.mutable_grad().reset();
    }
    c10::NoGradGuard no_grad;
    for (const at::Tensor& p : parameters_) p.copy_(at::zeros(p.sizes(), at::TensorOptions().dtype(p.scalar_type())));
  }

 private:
  Tensors parameters_;
};

}  // namespace

std::unique_ptr<Optimizer> make_transformers_adafactor(const Tensors& parameters) {
  return std::make_unique<TransformersAdafactor>(parameters);
}

std::unique_ptr<Optimizer> make_lion(const OptimizerSetup& setup, const Tensors& parameters) {
  return std::make_unique<Lion>(setup, parameters);
}

std::unique_ptr<Optimizer> make_muon(const OptimizerSetup& setup, const Tensors& matrices, const Tensors& others) {
  OptimizerSetup adamw = setup;
  adamw.kind = OptimizerKind::adamw;
  return std::make_unique<Both>(std::make_unique<Muon>(matrices), make_optimizer(adamw, others));
}

std::unique_ptr<Optimizer> make_host_optimizer(const Tensors& parameters) {
  return std::make_unique<OnHost>(parameters);
}

}  // namespace memplan::torch_side
