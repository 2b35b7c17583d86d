// Calls of a tape through PyTorch's dispatcher: above autograd and autocast, as Python's own calls come in.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "estimators/tape/tape.h"

namespace memplan::torch_side {

/// The Python names of a forward pass: one value per tape value, None once the name is gone.
using Names = std::vector<c10::IValue>;

struct CallSettings {
  c10::Device device = c10::Device(c10::kCPU);
  /// What model.half() or model.bfloat16() made of the default dtype; float32 otherwise.
  c10::ScalarType model_dtype = c10::ScalarType::Float;
};

c10::ScalarType scalar_type(DType dtype);

/// Runs one call and binds its outputs; names that end with it are dropped. Throws Refusal naming the call when PyTorch
/// does not know the op or takes other arguments.
void run_call(const Tape& tape, const Call& call, Names& names, const CallSettings& settings);

/// Runs an op of PyTorch by name, outside any tape.
c10::IValue call_op(const char* name, const char* overload, std::vector<c10::IValue> arguments);

}  // namespace memplan::torch_side
