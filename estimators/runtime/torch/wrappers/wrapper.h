// What stands around the model in the program of a data-parallel rank (DDP, FSDP).
#pragma once

#include <functional>
#include <memory>

#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/setup/parallel.h"

namespace memplan {

struct TrainingSetup;

class ModelWrapper : public BackwardHooks, public CallHooks {
 public:
  /// Before and after the model's forward; `sync` is false within no_sync().
  virtual void begin_forward(Run&, Environment&, bool /*sync*/) {}
  virtual void end_forward(Run&, Environment&) {}
  virtual void begin_backward(Run&) {}
  /// What backward() is called on instead of the loss, and what follows when it has returned.
  virtual Tensor scaled_loss(Run&, const Tensor& loss) { return loss; }
  virtual void end_backward(Run&) {}
  virtual void begin_optimizer(Run&) {}
  /// True where the optimizer steps again, on the next of several groups.
  virtual bool end_optimizer(Run&) { return false; }
  /// Pipelines: whether the next backward pass reduces gradients, and the reduction that stands for those that did not.
  virtual void set_sync(bool) {}
  virtual void reduce_gradients(Run&) {}
  void before(Run&, Environment&, std::int32_t) override {}
  void after(Run&, Environment&, std::int32_t) override {}
};

/// Moves one parameter or buffer of the tape to the device, as model.to does: the tensor with its name, dtype and
/// category; not yet a leaf.
using PlaceValue = std::function<Tensor(const TapeValue&)>;

/// torch.nn.parallel.DistributedDataParallel (torch/nn/parallel/distributed.py, csrc/distributed/c10d/reducer.cpp of
/// PyTorch 2.11) around a model that is on the device. `trainable` in registration order; `buffers` are what it
/// broadcasts.
std::unique_ptr<ModelWrapper> wrap_ddp(Run& run, const Tape& tape, const ParallelSetup& setup, const Environment& env,
                                       const TensorList& trainable);

/// torch.distributed.fsdp.fully_shard (torch/distributed/fsdp/_fully_shard of PyTorch 2.11) on every block and on the
/// root of a model that is on the host. Fills the environment with the gathered parameters, which have memory only
/// while they are gathered, and `trainable` with the shards, in registration order.
std::unique_ptr<ModelWrapper> wrap_fsdp(Run& run, const Tape& tape, const ParallelSetup& setup, Environment& env,
                                        const PlaceValue& place, TensorList& trainable);

/// Megatron-LM's DistributedDataParallel and mixed-precision optimizer
/// (megatron/core/distributed/param_and_grad_buffer.py, megatron/core/optimizer) around a model that is on the device.
/// `trainable` becomes what the optimizer updates: fp32 weights, whole or, with the distributed optimizer, the first
/// rank's part of them.
std::unique_ptr<ModelWrapper> wrap_megatron(Run& run, const ParallelSetup& setup, TensorList& trainable);

/// DeepSpeed's ZeRO stages (DeepSpeed 0.19.8) around a model that is on the device. `trainable` becomes the rank's fp32
/// partition; nothing where the optimizer is on the host.
std::unique_ptr<ModelWrapper> wrap_zero(Run& run, const Tape& tape, const TrainingSetup& setup, Environment& env,
                                        TensorList& trainable);

/// LinearFunctionForZeroStage3 (deepspeed/runtime/zero/linear.py of DeepSpeed 0.19.8): an autograd function of its own
/// instead of torch.nn.functional.linear, so that no view of a gathered weight outlives it.
Tensor linear_of_zero3(Run& run, const Tensor& input, const Tensor& weight, const Tensor& bias);

}  // namespace memplan
