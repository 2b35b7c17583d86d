// What a step without checkpoints keeps and needs, call by call: the figures that a plan is made from.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "estimators/pipeline.h"

namespace memplan {

/// What the last step of a run without checkpoints did, by the calls of the tape.
struct StepProfile {
  std::vector<std::int64_t> kept;  ///< per call: bytes made by it in the forward pass that wait for the backward pass
  std::vector<std::int64_t> forward;   ///< per call: most that is alive while it runs forward
  std::vector<std::int64_t> before;    ///< per call: what is alive where it begins
  std::vector<std::int64_t> backward;  ///< per call: most that is alive while its nodes run backward
  std::vector<std::int64_t> entry;     ///< per call: what is alive where its first node begins; 0 without nodes
  std::set<std::pair<std::int32_t, std::int32_t>>
      waiting;            ///< allocations (call, nth of that call) that wait for the backward pass
  std::int64_t rest = 0;  ///< most that is alive in the other phases
  std::int64_t loss = 0;  ///< most that is alive in the loss and its backward pass
};

StepProfile profile_of_step(const Tape& tape, const Schedule& schedule);

/// What each region hands on or holds on to, in bytes: values that cross its border, by the storages of a forward pass.
std::vector<std::int64_t> crossing_bytes(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                         const StepProfile& profile, const std::vector<CheckpointRegion>& regions);

}  // namespace memplan
