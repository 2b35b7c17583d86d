// memplan-torch, the program for what needs LibTorch (reading TorchScript, dry runs): found, started and asked from
// here. memplan itself never links LibTorch: loading it costs a quarter of a second and 100 MB, and most runs do not
// need it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "estimators/companion/process.h"

namespace memplan {

struct CompanionCall {
  std::string sub_command;  ///< "version", "execute", …: memplan_torch/main.cpp lists them
  std::vector<std::pair<std::string, std::string>> environment;  ///< on top of this process's own
  ProcessLimits limits;
};

/// Asks memplan-torch. It is $MEMPLAN_TORCH, or lies beside the running program or in ../libexec/memplan. Its LibTorch
/// is that of the Python named by $MEMPLAN_TORCH_PYTHON, else the one it was built with, else python3's. Failure(usage)
/// in one line with what to do when the program or the torch wheel is missing or does not load; the reply's own error;
/// Failure(internal) when it crashes, or goes over a limit.
nlohmann::json ask_companion(const CompanionCall& call, const nlohmann::json& request);

/// The preloadable library of the emulated GPU (emulated_gpu/): $MEMPLAN_EMULATED_GPU, or where the build and the
/// installation put it; empty when it is nowhere. Failure(usage) when the variable names no file.
std::string find_emulated_gpu();

/// The same; Failure(usage) with how to build it when it is nowhere.
std::string emulated_gpu_library();

/// Folder of the running program, without a slash at the end; empty when it cannot be told.
std::string program_folder();

}  // namespace memplan
