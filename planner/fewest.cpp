#include "planner/fewest.h"

#include <vector>

#include "planner/parallel_space.h"
#include "planner/rank_forecast.h"

namespace memplan {

namespace {

constexpr std::int64_t most = 16384, per_node = 8;

/// FSDP2 alone first, then over fewer ranks beside tensor parallelism.
std::vector<ParallelSetup> ways(std::int64_t gpus, const ParallelSetup& present) {
  std::vector<ParallelSetup> out;
  for (std::int64_t tensor = 1; tensor <= per_node && tensor <= gpus; tensor *= 2) {
    ParallelSetup p;
    p.gpus = gpus;
    p.tensor = tensor;
    p.sequence_parallel = tensor > 1;
    p.blocks = present.blocks;
    if (gpus > tensor) p.sharding = Sharding::fsdp;
    out.push_back(resolve(p));
  }
  return out;
}

}  // namespace

std::optional<FewestGpus> fewest_gpus(const Model& model, const TrainingSetup& setup, const Device& device, const MarginOf& margin) {
  if (setup.mode != Mode::training || is_parallel(resolve(setup.parallel))) return std::nullopt;
  Tapes tapes(model);
  const Result<Depth> depth = catching([&] { return tapes.depth(setup); });
  if (!depth) return std::nullopt;
  const Bytes limit = device.total - margin(device);
  for (std::int64_t gpus = 2; gpus <= most; gpus *= 2)
    for (const ParallelSetup& way : ways(gpus, setup.parallel)) {
      TrainingSetup s = setup;
      s.parallel = way;
      const Result<Forecast> forecast = catching([&] { return forecast_of_rank(tapes, s, *depth, depth->blocks, {}, device); });
      if (!forecast || forecast->process > limit) continue;
      const Result<Estimate> e = estimate(model, s, device);
      if (e && judge(*e, device, margin(device)).verdict == Verdict::fits) return FewestGpus{gpus, flags_of(way), s, e->peak.process};
    }
  return std::nullopt;
}

}  // namespace memplan
