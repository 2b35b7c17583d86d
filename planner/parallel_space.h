// The ways to spread a model over a number of GPUs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "estimators/pipeline.h"
#include "planner/space.h"

namespace memplan {

struct ParallelOption {
  ParallelSetup setup;      ///< resolved, but for the micro-batches of a pipeline: they follow from the batch
  std::string flags;        ///< settings (setup/field.h): all of the parallelism, so that they replace earlier ones
  bool converts = false;    ///< the model runs in bfloat16 by this option: no other precision goes with it
  bool accumulates = true;  ///< several micro-batches per optimizer step are possible
};

struct ParallelChoices {
  std::vector<ParallelOption> options;  ///< the present setup is the first one
  std::vector<Unavailable> impossible;  ///< degrees that the model does not allow, with its own reason
};

/// What a model allows, asked of the tapes themselves.
struct ParallelLimits {
  std::int64_t blocks = 0;    ///< stages of pipelines at most
  bool bf16 = true;           ///< the device has bfloat16 units
  std::int64_t per_node = 8;  ///< GPUs that the fast links join
  /// Failure of the rank's tape with these degrees (tensor, context, expert), none where there is one.
  std::function<std::optional<std::string>(std::int64_t, std::int64_t, std::int64_t)> refusal;
};

/// All products of degrees that make `present.parallel.gpus` and that the model allows: tensor parallelism within a
/// node, pipelines of at most as many stages as there are blocks, context and expert parallelism, and for the ranks
/// that are left DDP, ZeRO 1 to 3, FSDP2 with and without resharding, within nodes, and with bfloat16 gathered (where
/// the knob of the precision may be turned). Where the present setup is Megatron-LM's: that, with and without its
/// distributed optimizer, and nothing else.
ParallelChoices parallel_choices(const TrainingSetup& present, const ParallelLimits& limits, const Knobs& knobs);

/// The flags of a parallel setup without micro-batches.
std::string flags_of(const ParallelSetup& setup);

}  // namespace memplan
