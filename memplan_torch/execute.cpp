#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <torch/version.h>

#include "estimators/base/error.h"
#include "memplan_torch/commands.h"
#include "memplan_torch/libraries.h"
#include "memplan_torch/program.h"

namespace memplan::torch_side {

namespace {

/// at::cuda::getDeviceProperties, which is in a library that is opened at run time.
nlohmann::json device_json(int device) {
  using Get = cudaDeviceProp* (*)(c10::DeviceIndex);
  const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "_ZN2at4cuda19getDevicePropertiesEa"));
  if (!get) return {{"index", device}};
  const cudaDeviceProp& p = *get(static_cast<c10::DeviceIndex>(device));
  return {{"index", device},
          {"name", p.name},
          {"compute_capability", std::to_string(p.major) + "." + std::to_string(p.minor)},
          {"multiprocessors", p.multiProcessorCount},
          {"total_bytes", p.totalGlobalMem}};
}

std::string first_sentence(const std::string& text) { return text.substr(0, text.find(". ")); }

}  // namespace

nlohmann::json run_execute(const nlohmann::json& json) {
  DryRunRequest request;
  try {
    request = request_from_json(json.at("request"));
  } catch (const Failure& f) {
    throw Refusal("input", f.error().what, f.error().where, f.error().hint);
  }
  const int device = json.value("device", 0);
  if (const std::string problem = open_cuda(); !problem.empty())
    throw Refusal("usage", "this PyTorch has no CUDA libraries that can be opened", problem,
                  "install the CUDA build of torch: pip install torch");
  if (const std::string found = library_version(); found != TORCH_VERSION)
    throw Refusal("usage", "memplan-torch was built for torch " TORCH_VERSION " and runs with " + found, {},
                  "set MEMPLAN_TORCH_PYTHON to a Python with torch " TORCH_VERSION);
  const int count = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (count == 0)
    throw Refusal("usage", "this machine has no CUDA device that PyTorch can use", "--on cuda",
                  "--on emulated[:DEVICE] needs none");
  if (device < 0 || device >= count)
    throw Refusal("usage", "there is no CUDA device " + std::to_string(device), "--on cuda:" + std::to_string(device),
                  "PyTorch sees " + std::to_string(count));
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  at::globalContext().setDeterministicAlgorithms(false, false);

  auto* recorder = new Recorder(device);  // its callbacks may come as long as PyTorch runs
  nlohmann::json message = nullptr;
  try {
    run_program(request, device, *recorder);
  } catch (const c10::OutOfMemoryError& e) {
    recorder->finish();
    message = first_sentence(e.what_without_backtrace());
  }
  nlohmann::json reply = recorder->report(request.events);
  const auto [used, total] = recorder->device_memory();
  reply["device"] = device_json(device);
  reply["device"]["usable_bytes"] = total;
  reply["device"]["used_bytes"] = used;
  reply["torch"] = TORCH_VERSION;
  reply["out_of_memory"] = message;
  return reply;
}

}  // namespace memplan::torch_side
