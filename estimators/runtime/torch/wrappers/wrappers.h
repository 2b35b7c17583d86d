// The wrappers themselves, one file each; table.cpp has their rows.
#pragma once

#include "estimators/runtime/torch/wrappers/wrapper.h"

namespace memplan {

/// torch.nn.parallel.DistributedDataParallel (torch/nn/parallel/distributed.py, csrc/distributed/c10d/reducer.cpp of
/// PyTorch 2.11) around a model that is on the device; null with one rank.
std::unique_ptr<ModelWrapper> wrap_ddp(const WrapContext& context);

/// torch.distributed.fsdp.fully_shard (torch/distributed/fsdp/_fully_shard of PyTorch 2.11) on every block and on the
/// root of a model that is on the host. Fills the environment with the gathered parameters, which have memory only
/// while they are gathered, and `trainable` with the shards.
std::unique_ptr<ModelWrapper> wrap_fsdp(const WrapContext& context);

/// Megatron-LM's DistributedDataParallel and mixed-precision optimizer
/// (megatron/core/distributed/param_and_grad_buffer.py, megatron/core/optimizer) around a model that is on the device.
/// `trainable` becomes what the optimizer updates: fp32 weights, whole or, with the distributed optimizer, the first
/// rank's part of them.
std::unique_ptr<ModelWrapper> wrap_megatron(const WrapContext& context);

/// DeepSpeed's ZeRO stages 1 and 2 (stage_1_and_2.py of DeepSpeed 0.19.8) around a model that is on the device.
/// `trainable` becomes the rank's fp32 partition; nothing where the optimizer is on the host.
std::unique_ptr<ModelWrapper> wrap_zero12(const WrapContext& context);

/// Stage 3 (stage3.py, partition_parameters.py, partitioned_param_coordinator.py), likewise.
std::unique_ptr<ModelWrapper> wrap_zero3(const WrapContext& context);

/// LinearFunctionForZeroStage3 (deepspeed/runtime/zero/linear.py): an autograd function of its own instead of
/// torch.nn.functional.linear, so that no view of a gathered weight outlives it.
Tensor linear_of_zero3(Run& run, const Tensor& input, const Tensor& weight, const Tensor& bias);

}  // namespace memplan
