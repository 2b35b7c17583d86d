// What memplan asks memplan-torch to run: a tape and a setup as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// A tensor that the program makes by itself.
struct DryRunTensor {
  DType dtype = DType::int64;
  std::vector<std::int64_t> sizes;
};

struct DryRunRequest {
  Tape tape;
  TrainingSetup setup;
  std::optional<DryRunTensor> target;  ///< of the loss, made before the output is known; none where the loss needs none
  std::vector<DryRunTensor> kv_cache;  ///< keys and values of every layer
  std::vector<ValueId> hidden_matrices;  ///< those that Muon takes
  bool events = true;                    ///< report every allocation and free, not only the counters
};

/// `predicted` is the schedule of the same tape and setup: it knows the shapes of the target and of a cache.
DryRunRequest make_request(const Tape& tape, const TrainingSetup& setup, const Schedule& predicted);

nlohmann::json to_json(const DryRunRequest& request);
DryRunRequest request_from_json(const nlohmann::json& json);

}  // namespace memplan
