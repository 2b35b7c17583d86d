// A TorchScript archive opened without its weights.
#pragma once

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>

namespace memplan::torch_side {

struct ScriptFile {
  torch::jit::Module module;
  std::uint64_t bytes_read = 0;
};

/// Loads the module. What the records of tensors hold is never read (constants of a few bytes are), so the values of
/// its weights are undefined and cost no memory until somebody touches them. Refusal(input) for what LibTorch cannot
/// load.
ScriptFile open_script(const std::string& path);

}  // namespace memplan::torch_side
