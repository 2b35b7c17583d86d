#include "estimators/estimate/recorded_difference.h"

#include <algorithm>
#include <cstdlib>

#include "estimators/base/unwrap.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/pipeline.h"

namespace memplan {

namespace {

/// A batch at which both the events and the calls of the run were recorded.
std::optional<std::int64_t> common_batch(const recording::Run& run, std::int64_t wanted) {
  std::optional<std::int64_t> best;
  for (const recording::Program& p : run.programs)
    for (const std::int64_t b : p.batches) {
      const auto& known = run.calls->batches;
      if (std::find(known.begin(), known.end(), b) == known.end()) continue;
      if (!best || std::llabs(b - wanted) < std::llabs(*best - wanted)) best = b;
    }
  return best;
}

}  // namespace

std::optional<BothRoutes> both_routes(const Model& model, std::size_t run, std::int64_t batch,
                                      const TrainingSetup& setup) {
  const recording::Recording& recording = *model.recorded;
  const recording::Run& recorded = recording.runs[run];
  if (!recorded.calls) return std::nullopt;
  const auto common = common_batch(recorded, batch);
  if (!common) return std::nullopt;
  BothRoutes out;
  out.batch = *common;
  out.setup = recorded.setup;
  out.setup.allocator = setup.allocator;
  out.setup.runtime = setup.runtime;
  const Device device = choose_device(recording.gpu).device;
  out.steps = unwrap(estimate_tape(recording::tape_of_steps(model.recorded, *common, out.setup), out.setup, device));
  Tape calls = unwrap(restore(recording::tape_of_nearest(recording, *common, out.setup), out.setup));
  out.calls = unwrap(estimate_tape(unwrap(transform(std::move(calls), out.setup)), out.setup, device));
  return out;
}

std::optional<RangeSource> recorded_difference(const Model& model, const TrainingSetup& setup, const Estimate& e) {
  const auto run = recording::nearest_run(*model.recorded, setup);
  if (!run) return std::nullopt;
  const std::int64_t batch =
      setup.batch.value_or(model.recorded->batches.empty() ? 0 : model.recorded->batches.front());
  const auto both = both_routes(model, *run, batch, setup);
  if (!both) return std::nullopt;
  RangeSource s{About::program, "the calls run on paper, against the steps that were recorded", {}, {}};
  const double larger =
      std::max(1.0, static_cast<double>(e.peak.requested.count) /
                        static_cast<double>(std::max<std::int64_t>(1, both->steps.peak.requested.count)));
  for (const auto counter : each_counter) {
    const std::int64_t off = std::llabs((both->calls.peak.*counter).count - (both->steps.peak.*counter).count);
    s.below.*counter = s.above.*counter = Bytes(static_cast<std::int64_t>(static_cast<double>(off) * larger));
  }
  return s;
}

}  // namespace memplan
