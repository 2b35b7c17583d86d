#include "estimators/transforms/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "estimators/base/error.h"
#include "estimators/facts/nccl.h"
#include "estimators/setup/optimizers.h"
#include "estimators/setup/strategies.h"
#include "estimators/transforms/pipeline.h"

namespace memplan {

namespace {

[[noreturn]] void not_built(const std::string& what, const std::string& flag) {
  fail(ErrorKind::usage, fmt::format("{} is not modelled yet", what), flag, "docs/parallelism.md lists what is");
}

void check_stages(const Tape& tape, const ParallelSetup& p) {
  const std::int64_t count = count_blocks(tape, p), stages = p.pipeline * p.virtual_stages;
  if (stages > count)
    fail(ErrorKind::usage,
         fmt::format("{} pipeline stages{} need as many blocks; the model has {}", stages,
                     p.virtual_stages > 1 ? fmt::format(" ({} ranks x {} chunks)", p.pipeline, p.virtual_stages)
                                          : std::string(),
                     count),
         "--pp", fmt::format("use at most --pp {}", std::max<std::int64_t>(1, count / p.virtual_stages)));
  if (p.split.empty()) return;
  const std::int64_t sum = std::accumulate(p.split.begin(), p.split.end(), std::int64_t{0});
  if (sum != count)
    fail(ErrorKind::usage,
         fmt::format("the stages {} have {} blocks together; the model has {}", fmt::join(p.split, ","), sum, count),
         "--pp-split", fmt::format("give {} numbers that add up to {}", stages, count));
}

/// Backward passes in two parts: what PyTorch does with them beyond plain stages was not looked into.
void check_parts(const ParallelSetup& p, const TrainingSetup& setup, const Tape& tape) {
  if (!splits_backward(p.schedule)) return;
  if (!tape.checkpoints.empty() || setup.checkpoint_optimal)
    not_built("checkpointing with a backward pass in two parts", "--pp-schedule");
  if (p.data * p.context > 1) not_built("data parallelism around a backward pass in two parts", "--pp-schedule");
}

void check_megatron(const TrainingSetup& setup, const ParallelSetup& p) {
  if (setup.precision == Precision::amp_bf16 || setup.precision == Precision::amp_fp16)
    fail(ErrorKind::usage, "Megatron-LM converts the model instead of using autocast", strategy_of(p).flags,
         "use --precision bf16, fp16 or fp32");
  const OptimizerKind kind = setup.optimizer.kind;
  if (setup.mode == Mode::training && !optimizer_model(kind).adam && kind != OptimizerKind::sgd &&
      kind != OptimizerKind::none)
    not_built("another optimizer than Adam and SGD in Megatron-LM", "--optimizer");
  if (setup.optimizer.amsgrad) not_built("AMSGrad in Megatron-LM", "--optimizer");
  if (setup.offload.any()) not_built("offload in Megatron-LM", "--offload");
  if (setup.lora) not_built("adapters in Megatron-LM", setup.lora->quantized ? "--qlora" : "--lora");
}

}  // namespace

void check_parallel(const Tape& tape, const TrainingSetup& setup, const Ranks& p) {
  const DataStrategy& strategy = strategy_of(p);
  const bool zero = in_deepspeed(p);
  if (in_megatron(p)) check_megatron(setup, p);
  if (!is_parallel(p)) return;
  if (p.pipeline > 1) check_stages(tape, p), check_parts(p, setup, tape);
  if (setup.offload.any() && (!zero || setup.offload.activations || setup.mode == Mode::inference))
    not_built("this offload on several GPUs", "--offload");
  if (setup.offload.parameters && (!(zero && strategy.weights) || !setup.offload.optimizer))
    not_built("offload of parameters without that of the optimizer, or below stage 3,", "--offload");
  if (setup.kv_cache) not_built("a key/value cache on several GPUs", "--kv-cache");
  if (setup.keep_loss_history) not_built("a kept history of losses on several GPUs", "--loss-history");
  if (setup.optimizer.kind == OptimizerKind::muon && (!strategy.buckets || p.tensor > 1 || p.pipeline > 1))
    not_built("Muon on parts of matrices", "--optimizer");
  if (p.pipeline > 1 && setup.mode == Mode::inference) not_built("a pipeline in inference", "--pp");
  if (p.pipeline > 1 && setup.accumulate > 1)
    fail(ErrorKind::usage, "a pipeline accumulates over its micro-batches", "--accumulate", "use --micro-batches");
  // Experts would be sharded over fewer ranks than the rest.
  if (p.expert > 1 && !strategy.buckets) not_built("expert parallelism with sharded data parallelism", "--ep");
  if (p.expert > 1 && p.tensor > 1) not_built("expert together with tensor parallelism", "--ep");
  if (zero) {
    if (setup.precision == Precision::amp_bf16 || setup.precision == Precision::amp_fp16)
      fail(ErrorKind::usage, "DeepSpeed converts the model instead of using autocast", "--zero",
           "use --precision bf16, fp16 or fp32");
    // _cast_module_mixed_precision leaves buffers in fp32, and batch norm takes no fp32 statistics beside 16-bit
    // weights.
    const bool half = setup.precision == Precision::bf16 || setup.precision == Precision::fp16;
    const auto normalizes = [](const Call& c) { return c.op.find("batch_norm") != std::string::npos; };
    if (half && setup.mode == Mode::training && std::any_of(tape.calls.begin(), tape.calls.end(), normalizes))
      fail(ErrorKind::usage, "batch norm does not run in 16 bits under DeepSpeed, which leaves its statistics in fp32",
           "--precision", "use --precision fp32");
    if (p.pipeline > 1) not_built("ZeRO in a pipeline", "--zero");
    if (setup.accumulate > 1) not_built("ZeRO with accumulation", "--accumulate");
  }
}

Bytes nccl_of(const ParallelSetup& p) {
  const auto one = [](bool group) { return group ? 1 : 0; };
  const bool hybrid = p.shard_size > 0 && p.shard_size < p.data * p.context;
  return nccl_bytes(one(p.data > 1) + one(p.tensor > 1) + one(p.pipeline > 1) + one(p.context > 1) + one(p.expert > 1) +
                    one(hybrid));
}

}  // namespace memplan
