#include "planner/rank_forecast.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "estimators/base/threads.h"
#include "estimators/base/unwrap.h"
#include "estimators/transforms/pipeline_parallel.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

/// Nothing is refused on it, so that one replay is enough.
Device without_limit(Device device) {
  device.total = Bytes::gib(1LL << 30);
  return device;
}

double number(Bytes b) { return static_cast<double>(b.count); }

/// Blocks follow a straight line; what the allocator holds beyond what is handed out does not, and is taken from the
/// deeper run.
double drawn_on(const Counters& low, const Counters& high, double steps) {
  return number(low.allocated) + steps * (number(high.allocated) - number(low.allocated)) + number(high.process) -
         number(high.allocated);
}

Forecast as_it_is(Tapes& tapes, const TrainingSetup& s, const Device& device) {
  const Estimate e = unwrap(estimate_planned_tape(*tapes.of_rank(s, 0), s, device));
  return {e.peak.process, e.peak_phase == Phase::optimizer};
}

/// The setup with so few ranks. Steps with a steady state have one here as well: there gradients lie beside the
/// activations.
TrainingSetup short_pipeline(TrainingSetup s, std::int64_t ranks) {
  ParallelSetup& p = s.parallel;
  const bool steady = p.schedule != PipelineSchedule::gpipe && p.micro_batches > p.pipeline;
  p.gpus = p.gpus / p.pipeline * ranks;
  p.pipeline = ranks;
  p.micro_batches =
      p.schedule == PipelineSchedule::interleaved ? (steady ? 2 * ranks : ranks) : ranks + (steady ? 1 : 0);
  return s;
}

/// What happens in every nth block is in every stage that is run.
std::int64_t unit_of(const TrainingSetup& s) {
  std::int64_t unit = 1;
  for (const std::string& c : s.checkpoint)
    if (c.rfind("every:", 0) == 0) unit = std::max<std::int64_t>(unit, std::strtoll(c.c_str() + 6, nullptr, 10));
  return unit;
}

Forecast forecast_of_pipeline(Tapes& tapes, const TrainingSetup& s, const Depth& depth, std::int64_t blocks,
                              const Crossing& crossing, const Device& device) {
  const ParallelSetup& p = s.parallel;
  const std::int64_t ranks = std::min<std::int64_t>(3, p.pipeline), chunks = p.virtual_stages,
                     stages = p.pipeline * chunks, unit = unit_of(s);
  // Stages of the short pipeline must be made of the run's blocks, as even as they go and in order.
  const bool uneven = !p.split.empty() || splits_backward(p.schedule);
  if (uneven || 2 * ranks * chunks * unit >= blocks || blocks - 2 * chunks * unit >= depth.run)
    return as_it_is(tapes, s, device);
  const TrainingSetup few = short_pipeline(s, ranks);
  const std::shared_ptr<const Tape> tape[2] = {tapes.of_rank(few, ranks * chunks * unit),
                                               tapes.of_rank(few, 2 * ranks * chunks * unit)};
  Estimate ran[2];
  in_parallel(2, [&](std::size_t i) { ran[i] = unwrap(estimate_planned_tape(*tape[i], few, device)); });
  // Each rank has buffers for every micro-batch of the step: the first one for gradients (and for what comes around to
  // its later chunks), the last one for activations, those between for both.
  const auto peak_of = [&](std::int64_t rank, std::int64_t of_stage, std::int64_t short_rank, std::int64_t received) {
    const Counters &low = ran[0].ranks[static_cast<std::size_t>(short_rank)].peak,
                   &high = ran[1].ranks[static_cast<std::size_t>(short_rank)].peak;
    const double more_blocks = static_cast<double>(of_stage) / static_cast<double>(unit) - 1;
    const auto more_flights =
        static_cast<double>(most_in_flight(actions_of(p, rank)) - most_in_flight(actions_of(few.parallel, short_rank)));
    const auto more_buffers = static_cast<double>(received * (p.micro_batches - few.parallel.micro_batches));
    return number(low.allocated) + more_blocks * (number(high.allocated) - number(low.allocated)) +
           more_flights * static_cast<double>(of_stage) * crossing.kept + more_buffers * crossing.sent +
           number(high.process) - number(high.allocated);
  };
  const std::int64_t longest = (blocks + stages - 1) / stages;
  double peak = std::max(peak_of(0, longest, 0, 2 * chunks - 1),
                         peak_of(p.pipeline - 1, blocks / stages, ranks - 1, 2 * chunks - 1));
  if (ranks > 2) peak = std::max(peak, peak_of(1, longest, 1, 2 * chunks));
  return {Bytes(static_cast<std::int64_t>(peak)), ran[1].peak_phase == Phase::optimizer};
}

}  // namespace

std::pair<std::int64_t, std::int64_t> shallow_depths(const Depth& depth) {
  const std::int64_t low = 4 + depth.blocks % 2, high = low + 2;
  if (high >= depth.blocks || depth.blocks - low >= depth.run) return {0, 0};
  return {low, high};
}

Forecast forecast_of_rank(Tapes& tapes, const TrainingSetup& setup, const Depth& depth, std::int64_t blocks,
                          const Crossing& crossing, const Device& given) {
  const Device device = without_limit(given);
  TrainingSetup s = setup;
  // The state of the optimizer is there from the second step on; gradients stay from the second micro-batch on.
  s.steps = 2;
  s.accumulate = std::min<std::int64_t>(s.accumulate, 2);
  if (s.parallel.pipeline > 1) return forecast_of_pipeline(tapes, s, depth, blocks, crossing, device);
  const auto [low, high] = shallow_depths(depth);
  if (low == 0) return as_it_is(tapes, s, device);
  const std::shared_ptr<const Tape> ranks[2] = {tapes.of_rank(s, low), tapes.of_rank(s, high)};
  Estimate e[2];
  in_parallel(2, [&](std::size_t i) { e[i] = unwrap(estimate_planned_tape(*ranks[i], s, device)); });
  const double steps = static_cast<double>(depth.blocks - low) / static_cast<double>(high - low);
  return {Bytes(static_cast<std::int64_t>(drawn_on(e[0].peak, e[1].peak, steps))), e[1].peak_phase == Phase::optimizer};
}

}  // namespace memplan
