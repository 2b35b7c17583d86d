// torch.optim's optimizers as they call PyTorch, op by op (torch/optim/*.py of 2.11), and what stands around them in
// the reference program: clipping and the gradient scaler.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "estimators/setup/setup.h"

namespace memplan::torch_side {

using Tensors = std::vector<at::Tensor>;

/// What a Python list of tensors is when it goes: its items are let go from the last to the first.
struct PyTensors : Tensors {
  using Tensors::Tensors;
  PyTensors(Tensors&& t) : Tensors(std::move(t)) {}
  PyTensors(PyTensors&&) = default;
  PyTensors& operator=(PyTensors&& other) {
    clear_backwards();
    Tensors::operator=(std::move(other));
    return *this;
  }
  ~PyTensors() { clear_backwards(); }
  void clear_backwards() {
    while (!empty()) pop_back();
  }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step() = 0;
};

/// Null for OptimizerKind::none. Throws Refusal for those that PyTorch itself does not bring.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup, const Tensors& parameters);

/// transformers.Adafactor with Trainer's settings.
std::unique_ptr<Optimizer> make_transformers_adafactor(const Tensors& parameters);

/// The Lion of the lion_pytorch package.
std::unique_ptr<Optimizer> make_lion(const OptimizerSetup& setup, const Tensors& parameters);

/// torch.optim.Muon for the matrices, then torch.optim.AdamW for the others; `setup` is AdamW's.
std::unique_ptr<Optimizer> make_muon(const OptimizerSetup& setup, const Tensors& matrices, const Tensors& others);

/// Any optimizer on copies of the parameters in host memory (--offload optimizer).
std::unique_ptr<Optimizer> make_host_optimizer(const Tensors& parameters);

/// torch.nn.utils.clip_grad_norm_(parameters, 1.0)
void clip_grad_norm(const Tensors& parameters);

/// torch.amp.GradScaler with its defaults.
class GradScaler {
 public:
  at::Tensor scale(const at::Tensor& loss);
  void unscale(const Tensors& parameters);
  /// Reads the flags of infinite gradients; true when the optimizer may step.
  bool all_finite() const;
  void update();

 private:
  at::Tensor scale_, growth_, found_inf_;
};

}  // namespace memplan::torch_side
