#include "estimators/transforms/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "estimators/base/error.h"
#include "estimators/facts/nccl.h"
#include "estimators/setup/field.h"
#include "estimators/setup/optimizers.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/setup/strategies.h"
#include "estimators/transforms/pipeline_parallel.h"

namespace memplan {

namespace {

[[noreturn]] void not_built(const std::string& what, const std::string& field) {
  fail(ErrorKind::usage, fmt::format("{} is not modelled yet", what), field, "docs/parallelism.md lists what is");
}

void check_stages(const Tape& tape, const ParallelSetup& p) {
  const std::int64_t count = count_blocks(tape, p), stages = p.pipeline * p.virtual_stages;
  if (stages > count)
    fail(ErrorKind::usage,
         fmt::format("{} pipeline stages{} need as many blocks; the model has {}", stages,
                     p.virtual_stages > 1 ? fmt::format(" ({} ranks x {} chunks)", p.pipeline, p.virtual_stages)
                                          : std::string(),
                     count),
         setting(Field::pipeline_parallel),
         fmt::format("use at most {}",
                     setting(Field::pipeline_parallel, std::max<std::int64_t>(1, count / p.virtual_stages))));
  if (p.split.empty()) return;
  const std::int64_t sum = std::accumulate(p.split.begin(), p.split.end(), std::int64_t{0});
  if (sum != count)
    fail(ErrorKind::usage,
         fmt::format("the stages {} have {} blocks together; the model has {}", fmt::join(p.split, ","), sum, count),
         setting(Field::pipeline_split), fmt::format("give {} numbers that add up to {}", stages, count));
}

/// Backward passes in two parts: what PyTorch does with them beyond plain stages was not looked into.
void check_parts(const ParallelSetup& p, const TrainingSetup& setup, const Tape& tape) {
  if (!splits_backward(p.schedule)) return;
  if (!tape.checkpoints.empty() || setup.checkpoint_optimal)
    not_built("checkpointing with a backward pass in two parts", setting(Field::pipeline_schedule));
  if (p.data * p.context > 1)
    not_built("data parallelism around a backward pass in two parts", setting(Field::pipeline_schedule));
}

void check_megatron(const TrainingSetup& setup, const ParallelSetup& p) {
  if (is_amp(setup.precision))
    fail(ErrorKind::usage, "Megatron-LM converts the model instead of using autocast", setting(strategy_of(p).field),
         "use " + setting(Field::precision, "bf16") + ", fp16 or fp32");
  const OptimizerKind kind = setup.optimizer.kind;
  if (setup.mode == Mode::training && !optimizer_model(kind).adam && kind != OptimizerKind::sgd &&
      kind != OptimizerKind::none)
    not_built("another optimizer than Adam and SGD in Megatron-LM", setting(Field::optimizer));
  if (setup.optimizer.amsgrad) not_built("AMSGrad in Megatron-LM", setting(Field::optimizer));
  if (setup.offload.any()) not_built("offload in Megatron-LM", setting(Field::offload));
  if (setup.lora)
    not_built("adapters in Megatron-LM", setup.lora->quantized ? setting(Field::lora_quantized) : setting(Field::lora));
}

/// aten::_amp_foreach_non_finite_check_and_unscale_ gets all gradients of a device at once, and DTensor refuses to work
/// beside the plain gradients of norms.
void check_scaler(const TrainingSetup& setup, const ParallelSetup& p) {
  if (p.tensor > 1 && !p.sequence_parallel && strategy_of(p).buckets && !in_megatron(p) &&
      setup.mode == Mode::training && setup.precision == Precision::amp_fp16)
    fail(ErrorKind::usage, "GradScaler takes no mixture of DTensors and the norms' plain tensors",
         setting(Field::tensor_parallel),
         "add " + setting(Field::sequence_parallel) + ", or use " + setting(Field::autocast, "bf16"));
}

}  // namespace

void check_parallel(const Tape& tape, const TrainingSetup& setup, const Ranks& p) {
  const DataStrategy& strategy = strategy_of(p);
  const bool zero = in_deepspeed(p);
  if (in_megatron(p)) check_megatron(setup, p);
  check_scaler(setup, p);
  if (!is_parallel(p)) return;
  if (p.pipeline > 1) check_stages(tape, p), check_parts(p, setup, tape);
  if (setup.offload.any() && (!zero || setup.offload.activations || setup.mode == Mode::inference))
    not_built("this offload on several GPUs", setting(Field::offload));
  if (setup.offload.parameters && (!(zero && strategy.weights) || !setup.offload.optimizer))
    not_built("offload of parameters without that of the optimizer, or below stage 3,", setting(Field::offload));
  if (setup.kv_cache) not_built("a key/value cache on several GPUs", setting(Field::kv_cache));
  if (setup.keep_loss_history) not_built("a kept history of losses on several GPUs", setting(Field::keep_loss_history));
  if (setup.optimizer.kind == OptimizerKind::muon && (!strategy.buckets || p.tensor > 1 || p.pipeline > 1))
    not_built("Muon on parts of matrices", setting(Field::optimizer));
  if (p.pipeline > 1 && setup.mode == Mode::inference)
    not_built("a pipeline in inference", setting(Field::pipeline_parallel));
  if (p.pipeline > 1 && setup.accumulate > 1)
    fail(ErrorKind::usage, "a pipeline accumulates over its micro-batches", setting(Field::accumulate),
         "use " + setting(Field::micro_batches));
  // Experts would be sharded over fewer ranks than the rest.
  if (p.expert > 1 && !strategy.buckets)
    not_built("expert parallelism with sharded data parallelism", setting(Field::expert_parallel));
  if (p.expert > 1 && p.tensor > 1)
    not_built("expert together with tensor parallelism", setting(Field::expert_parallel));
  if (zero) {
    if (is_amp(setup.precision))
      fail(ErrorKind::usage, "DeepSpeed converts the model instead of using autocast", setting(Field::zero),
           "use " + setting(Field::precision, "bf16") + ", fp16 or fp32");
    // _cast_module_mixed_precision leaves buffers in fp32, and batch norm takes no fp32 statistics beside 16-bit
    // weights.
    const bool half = setup.precision == Precision::bf16 || setup.precision == Precision::fp16;
    const auto normalizes = [](const Call& c) { return c.op.find("batch_norm") != std::string::npos; };
    if (half && setup.mode == Mode::training && std::any_of(tape.calls.begin(), tape.calls.end(), normalizes))
      fail(ErrorKind::usage, "batch norm does not run in 16 bits under DeepSpeed, which leaves its statistics in fp32",
           setting(Field::precision), "use " + setting(Field::precision, "fp32"));
    if (p.pipeline > 1) not_built("ZeRO in a pipeline", setting(Field::zero));
    if (setup.accumulate > 1) not_built("ZeRO with accumulation", setting(Field::accumulate));
  }
}

Bytes nccl_of(const ParallelSetup& p) {
  const auto one = [](bool group) { return group ? 1 : 0; };
  const bool hybrid = p.shard_size > 0 && p.shard_size < p.data * p.context;
  // DeepSpeed reduces in a clone of the world (utils/groups.py, _clone_world_group) and starts in the world itself.
  const bool cloned = in_deepspeed(p) && p.data > 1;
  return nccl_bytes(one(p.data > 1) + one(cloned) + one(p.tensor > 1) + one(p.pipeline > 1) + one(p.context > 1) +
                    one(p.expert > 1) + one(hybrid));
}

}  // namespace memplan
