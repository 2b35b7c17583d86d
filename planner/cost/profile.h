// What one micro-batch of a setup computes and moves, call by call, taken from the very run whose memory is estimated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "estimators/pipeline.h"

namespace memplan {

/// Which units of the device do the products of a call.
enum class Unit : std::uint8_t { fp32, tf32, half, bf16, fp8 };

struct CallWork {
  std::int32_t call = -1;  ///< index into the tape's calls; -1: the loss
  Unit unit = Unit::fp32;
  double forward_flops = 0, backward_flops = 0;
  double forward_bytes = 0, backward_bytes = 0;
  double again = 0;      ///< how often the forward part runs once more in the backward pass
  double out_bytes = 0;  ///< of the first result, also of views
  bool kernel = false;   ///< false: a view, nothing runs on the device
};

struct Profile {
  std::vector<CallWork> calls;
  Bytes peak;          ///< requested bytes of one step without an optimizer: a bound from below for every later step
  Bytes forward_peak;  ///< likewise, until the loss is taken
  Bytes parameters;    ///< bytes of parameters and buffers on the device
  Bytes gradients;     ///< bytes of the gradients of one step
  /// Bytes other than weights, gradients and what an optimizer holds (workspaces left out) when the forward pass has
  /// ended, then after every event from there to the end of the backward pass. Empty in inference.
  std::vector<double> turn;
  std::int64_t blocks = 0;  ///< repeated modules that lie in no other one
  double boundary = 0;      ///< bytes that one block hands to the next; the largest
  std::int64_t trained_elements = 0, trained_tensors = 0;
  double forward_flops = 0, backward_flops = 0, again_flops = 0;
};

/// Runs one micro-batch of the setup (accumulation and optimizer left out) and counts.
Result<Profile> profile(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// Highest sum of requested bytes at the events that belong to ops of `phase` (any when none is given). Workspaces of
/// libraries are left out: they depend on the algorithms chosen and follow no line in the batch.
Bytes requested_peak(const Schedule& schedule, std::optional<Phase> phase = {});

}  // namespace memplan
