// From a recording to a tape and to the events of its steps.
#pragma once

#include <memory>
#include <optional>

#include "estimators/base/error.h"
#include "estimators/facts/device.h"
#include "estimators/frontends/recording/recording.h"

namespace memplan::recording {

/// One recorded setup at one size: what a tape carries instead of calls.
struct Steps {
  std::shared_ptr<const Recording> recording;
  std::size_t run = 0;
  std::int64_t batch = 0;  ///< 0 where it is not open
};

/// What answers `setup` at `batch`: the recorded steps where they ran with it (Tape::recorded, no calls), else the
/// calls of the nearest run. Failure(usage) where the recording tells neither.
Tape tape_of(const std::shared_ptr<const Recording>& recording, std::int64_t batch, const TrainingSetup& setup);

/// Each of the two alone.
Tape tape_of_steps(const std::shared_ptr<const Recording>& recording, std::int64_t batch, const TrainingSetup& setup);
Tape tape_of_nearest(const Recording& recording, std::int64_t batch, const TrainingSetup& setup);

/// The batch that is estimated when none is asked for. None where only recorded batches are answered, or none is open.
std::optional<std::int64_t> open_batch(const Recording& recording, const TrainingSetup& setup);

/// The recorded events, with sizes of the batch. Widened where a size does not follow a line through the recorded
/// batches, and where `device` is not of the kind that was recorded.
Schedule schedule_of(const Steps& steps, const TrainingSetup& setup, const Device& device);

}  // namespace memplan::recording
