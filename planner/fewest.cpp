#include "planner/fewest.h"

#include <vector>

#include "estimators/base/unwrap.h"
#include "estimators/setup/field.h"
#include "planner/checkpointing/plan.h"
#include "planner/parallel_space.h"
#include "planner/rank_forecast.h"

namespace memplan {

namespace {

constexpr std::int64_t most = 16384, per_node = 8;

/// FSDP2 alone first, then over fewer ranks beside tensor parallelism.
ParallelSetup way(std::int64_t gpus, std::int64_t tensor, const ParallelSetup& present) {
  ParallelSetup p;
  p.gpus = gpus;
  p.tensor = tensor;
  p.sequence_parallel = tensor > 1;
  p.loss_parallel = tensor > 1 && present.loss_parallel;
  p.blocks = present.blocks;
  if (gpus > tensor) {
    p.sharding = Sharding::fsdp;
    p.param_dtype = present.param_dtype;
    p.reduce_dtype = present.reduce_dtype;
  }
  return resolve(p);
}

/// What one knob after the other leaves to be shared out.
struct Step {
  std::string flags;
  TrainingSetup setup;
};

std::vector<Step> steps_of(const TrainingSetup& setup) {
  std::vector<Step> steps{{"", setup}};
  if (setup.checkpoint.empty() && !setup.checkpoint_optimal) {
    steps.push_back({" " + setting(Field::checkpoint, "blocks"), setup});
    steps.back().setup.checkpoint = {"blocks"};
  }
  if (setup.precision == Precision::fp32) {
    steps.push_back(steps.back());
    ParallelSetup& p = steps.back().setup.parallel;
    p.param_dtype = DType::bfloat16;
    p.reduce_dtype = DType::float32;
  }
  return steps;
}

class FewestSearch {
 public:
  FewestSearch(Tapes& tapes, const Depth& depth, const Device& device, Bytes margin)
      : tapes_(tapes), depth_(depth), device_(device), margin_(margin) {}

  std::optional<FewestGpus> find(const Step& step) {
    // What too many ranks do not hold fewer will not.
    std::vector<std::int64_t> degrees;
    for (std::int64_t tensor = 1; tensor <= per_node; tensor *= 2)
      if (promises(with(step.setup, most, tensor))) degrees.push_back(tensor);
    for (std::int64_t gpus = 2; gpus <= most && !degrees.empty(); gpus *= 2)
      for (std::int64_t tensor : degrees) {
        if (tensor > gpus) continue;
        const TrainingSetup s = with(step.setup, gpus, tensor);
        if (!promises(s)) continue;
        const Result<Estimate> e =
            catching([&] { return unwrap(estimate_planned_tape(*tapes_.of_rank(s, 0), s, device_)); });
        if (e && judge(*e, device_, margin_).verdict == Verdict::fits)
          return FewestGpus{gpus, flags_of(s.parallel) + step.flags, s, e->peak.process};
      }
    return std::nullopt;
  }

 private:
  static TrainingSetup with(TrainingSetup s, std::int64_t gpus, std::int64_t tensor) {
    s.parallel = way(gpus, tensor, s.parallel);
    return s;
  }

  bool promises(const TrainingSetup& s) {
    const Result<Forecast> forecast =
        catching([&] { return forecast_of_rank(tapes_, s, depth_, depth_.blocks, {}, device_); });
    return forecast && forecast->process <= device_.total - margin_;
  }

  Tapes& tapes_;
  const Depth depth_;
  const Device& device_;
  const Bytes margin_;
};

}  // namespace

std::optional<FewestGpus> fewest_gpus(const Model& model, const TrainingSetup& setup, const Device& device,
                                      const MarginOf& margin, bool further) {
  if (setup.mode != Mode::training || is_parallel(resolve(setup.parallel))) return std::nullopt;
  Tapes tapes(model);
  const Result<Depth> depth = catching([&] { return tapes.depth(setup); });
  if (!depth) return std::nullopt;
  FewestSearch search(tapes, *depth, device, margin(device));
  for (const Step& step : steps_of(setup)) {
    if (auto found = search.find(step)) return found;
    if (!further) break;
  }
  return std::nullopt;
}

}  // namespace memplan
