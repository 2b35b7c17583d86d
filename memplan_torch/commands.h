// memplan-torch: one function per sub-command, one file each. memplan starts the program, writes a request as JSON to
// its stdin and reads the reply as JSON from its stdout (estimators/companion/companion.h is the other end).
//
// A sub-command returns the reply, or throws: Refusal for what the user can act on, anything else for the rest. main
// prints {"reply": …} or {"error": {"kind", "what", "where", "hint"}} and nothing else.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace memplan::torch_side {

/// An error in the words of memplan::Error; `kind` is "usage", "input" or "internal".
struct Refusal : std::runtime_error {
  Refusal(std::string kind_, std::string what_, std::string where_ = {}, std::string hint_ = {})
      : std::runtime_error(std::move(what_)),
        kind(std::move(kind_)),
        where(std::move(where_)),
        hint(std::move(hint_)) {}
  std::string kind, where, hint;
};

struct SubCommand {
  const char* name;
  const char* summary;
  nlohmann::json (*run)(const nlohmann::json& request);
};

/// {"torch": version built for, "libraries": version found at run time, "cuda": whether libtorch_cuda opens}
nlohmann::json run_version(const nlohmann::json& request);

/// {"path"} -> the program of a TorchScript file without its weights (read_torchscript.cpp)
nlohmann::json run_read_torchscript(const nlohmann::json& request);

/// Request: estimators/dryrun/request.h, and "device", the index of the CUDA device. Reply: what Recorder::report says,
/// "device", "torch", and "out_of_memory", the allocator's message or null.
nlohmann::json run_execute(const nlohmann::json& request);

}  // namespace memplan::torch_side
