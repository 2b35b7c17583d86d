#include "estimators/pipeline.h"

#include <fmt/format.h>

#include "estimators/estimate/checkpoint_plan.h"

namespace memplan {

namespace {

/// A device that never refuses: the replay on it shows what the program needs.
Device without_limit(Device device) {
  device.total = Bytes::gib(1LL << 30);
  return device;
}

template <class T>
T take(Result<T> result) {
  if (!result) throw Failure(result.error());
  return std::move(result.value());
}

}  // namespace

Result<Estimate> estimate_tape(const Tape& given, const TrainingSetup& setup, const Device& device) {
  return catching([&] {
    std::optional<Tape> planned;
    if (setup.checkpoint_optimal) planned = take(with_planned_checkpoints(given, setup, device));
    const Tape& tape = planned ? *planned : given;
    const Schedule schedule = take(run_steps(tape, setup, device));
    const Timeline unlimited = take(replay(schedule, setup.allocator, without_limit(device)));
    Estimate need = take(summarize(tape, schedule, unlimited, setup, device));
    const AllocatorSetup& allocator = setup.allocator;
    // Only a device that is too small, or settings that look at the device's size, change the replay.
    const bool sees_limit = need.peak.process > device.total || allocator.memory_fraction < 1.0 || allocator.garbage_collection_threshold > 0;
    if (!sees_limit) return need;
    const Timeline limited = take(replay(schedule, allocator, device));
    Estimate real = take(summarize(tape, schedule, limited, setup, device));
    if (real.out_of_memory) {
      // The replay stopped half-way; the figures that help are those of a device that is large enough.
      need.out_of_memory = true;
      need.out_of_memory_at = real.out_of_memory_at;
      need.retries = real.retries;
      return need;
    }
    real.unlimited_process = need.peak.process;
    if (real.retries > 0)
      real.notes.push_back({"MP040 fragmentation-risk", fmt::format("the allocator empties its cache and tries again {} times in {} steps; with free room "
                                                                     "the process would grow to {}", real.retries, setup.steps, to_human(need.peak.process))});
    return real;
  });
}

Result<Estimate> estimate(const Model& model, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return take(estimate_tape(take(lower(model, setup)), setup, device)); });
}

}  // namespace memplan
