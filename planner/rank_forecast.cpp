#include "planner/rank_forecast.h"

#include <algorithm>
#include <vector>

#include "estimators/base/take.h"
#include "estimators/strategies/pipeline.h"

namespace memplan {

namespace {

/// Nothing is refused on it, so that one replay is enough.
Device without_limit(Device device) {
  device.total = Bytes::gib(1LL << 30);
  return device;
}

double number(Bytes b) { return static_cast<double>(b.count); }

/// Blocks follow a straight line; what the allocator holds beyond what is handed out does not, and is taken from the deeper run.
double drawn_on(const Counters& low, const Counters& high, double steps) {
  return number(low.allocated) + steps * (number(high.allocated) - number(low.allocated)) + number(high.process) - number(high.allocated);
}

Forecast as_it_is(Tapes& tapes, const TrainingSetup& s, const Device& device) {
  const Estimate e = take(estimate_tape(tapes.of_rank(s, 0), s, device));
  return {e.peak.process, e.peak_phase == Phase::optimizer};
}

/// The first and the last rank of a short pipeline of stages of one and of two blocks.
struct ShortPipeline {
  Counters first[2], last[2];
  std::int64_t flights = 0, micro_batches = 0;
  bool in_optimizer = false;
};

ShortPipeline run_short(Tapes& tapes, TrainingSetup s, std::int64_t ranks, const Device& device) {
  ParallelSetup& p = s.parallel;
  // Steps with a steady state have one here as well: there gradients lie beside the activations.
  const bool steady = p.schedule != PipelineSchedule::gpipe && p.micro_batches > p.pipeline;
  p.gpus = p.gpus / p.pipeline * ranks;
  p.pipeline = ranks;
  p.micro_batches = p.schedule == PipelineSchedule::interleaved ? (steady ? 2 * ranks : ranks) : ranks + (steady ? 1 : 0);
  ShortPipeline out;
  out.micro_batches = p.micro_batches;
  out.flights = most_in_flight(actions_of(p, 0));
  for (int i = 0; i < 2; ++i) {
    const Estimate e = take(estimate_tape(tapes.of_rank(s, ranks * p.virtual_stages * (i + 1)), s, device));
    out.in_optimizer = e.peak_phase == Phase::optimizer;
    out.first[i] = e.ranks.front().peak;
    out.last[i] = e.ranks.back().peak;
  }
  return out;
}

double with_blocks_on(const Counters (&c)[2], double blocks) {
  return number(c[0].allocated) + (blocks - 1) * (number(c[1].allocated) - number(c[0].allocated));
}

double cached(const Counters& c) { return number(c.process) - number(c.allocated); }

Forecast forecast_of_pipeline(Tapes& tapes, const TrainingSetup& s, const Depth& depth, std::int64_t blocks, double boundary, const Device& device) {
  const ParallelSetup& p = s.parallel;
  const std::int64_t stages = p.pipeline * p.virtual_stages;
  // Short pipelines have two or three ranks; their stages must be made of the run's blocks.
  if (6 * p.virtual_stages >= blocks || blocks - 2 * p.virtual_stages >= depth.run) return as_it_is(tapes, s, device);
  const ShortPipeline two = run_short(tapes, s, 2, device);
  const double longest = static_cast<double>((blocks + stages - 1) / stages), shortest = static_cast<double>(blocks / stages);
  double first = with_blocks_on(two.first, longest), per_flight = 0;
  const std::int64_t flights = most_in_flight(actions_of(p, 0));
  if (p.pipeline > 2 && flights > two.flights) {
    const ShortPipeline three = run_short(tapes, s, 3, device);
    if (three.flights > two.flights) per_flight = (with_blocks_on(three.first, longest) - first) / static_cast<double>(three.flights - two.flights);
  }
  first += per_flight * static_cast<double>(flights - two.flights);
  // The first rank receives gradients, the last one activations, into buffers for every micro-batch of the step.
  const double buffers = boundary * static_cast<double>(std::max<std::int64_t>(0, p.micro_batches - std::max(flights / p.virtual_stages, two.micro_batches))) * static_cast<double>(p.virtual_stages);
  const double last = with_blocks_on(two.last, shortest) + boundary * static_cast<double>(p.micro_batches - two.micro_batches) * static_cast<double>(p.virtual_stages);
  const double peak = std::max(first + buffers + cached(two.first[1]), last + cached(two.last[1]));
  return {Bytes(static_cast<std::int64_t>(peak)), two.in_optimizer};
}

}  // namespace

std::pair<std::int64_t, std::int64_t> shallow_depths(const Depth& depth) {
  const std::int64_t low = 4 + depth.blocks % 2, high = low + 2;
  if (high >= depth.blocks || depth.blocks - low >= depth.run) return {0, 0};
  return {low, high};
}

Forecast forecast_of_rank(Tapes& tapes, const TrainingSetup& setup, const Depth& depth, std::int64_t blocks, double boundary, const Device& given) {
  const Device device = without_limit(given);
  TrainingSetup s = setup;
  // The state of the optimizer is there from the second step on; gradients stay from the second micro-batch on.
  s.steps = 2;
  s.accumulate = std::min<std::int64_t>(s.accumulate, 2);
  if (s.parallel.pipeline > 1) return forecast_of_pipeline(tapes, s, depth, blocks, boundary, device);
  const auto [low, high] = shallow_depths(depth);
  if (low == 0) return as_it_is(tapes, s, device);
  const Estimate a = take(estimate_tape(tapes.of_rank(s, low), s, device)), b = take(estimate_tape(tapes.of_rank(s, high), s, device));
  const double steps = static_cast<double>(depth.blocks - low) / static_cast<double>(high - low);
  return {Bytes(static_cast<std::int64_t>(drawn_on(a.peak, b.peak, steps))), b.peak_phase == Phase::optimizer};
}

}  // namespace memplan
