// A dry run: PyTorch itself executes a tape's steps, on the emulated GPU or a real one, and says what its allocator
// did.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "estimators/dryrun/request.h"
#include "estimators/facts/device.h"
#include "estimators/measured/measurement.h"

namespace memplan {

struct DryRunPlace {
  bool emulated = true;
  std::int64_t index = 0;                        ///< of the CUDA device, where not emulated
  Device card;                                   ///< to emulate
  std::string allocator_settings;                ///< PYTORCH_ALLOC_CONF; empty: the environment's own
  std::map<std::string, std::string> variables;  ///< of the environment, beside the one that runs memplan
  std::chrono::seconds time_limit{600};
};

/// The variables that make a process see this card as its GPU: the emulated one, which is preloaded. Failure(usage)
/// where its library is not built.
std::vector<std::pair<std::string, std::string>> emulated_environment(const Device& card);

/// What PyTorch found to run on, besides what it measured.
struct DryRun {
  Measurement measured;
  Device device;  ///< as PyTorch reports it: name, compute capability, multiprocessors, total
};

/// Failure(usage) when memplan-torch, PyTorch, the emulated GPU's library or a CUDA device is missing, with what to do;
/// Failure(usage) for setups that a dry run cannot execute; Failure(input) naming the op when PyTorch does not run one.
DryRun dry_run(const DryRunRequest& request, const DryRunPlace& place);

/// A reply of memplan-torch's "execute" (memplan_torch/recorder.h).
DryRun dry_run_from_reply(const nlohmann::json& reply);

}  // namespace memplan
