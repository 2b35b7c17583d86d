// The TOML of torchtitan (torchtitan/config/job_config.py).
#include <fmt/format.h>

#include "cli/program/settings.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

const char* schedule_name(const ParallelSetup& p) {
  switch (p.schedule) {
    case PipelineSchedule::gpipe:
      return "GPipe";
    case PipelineSchedule::interleaved:
      return "Interleaved1F1B";
    case PipelineSchedule::zero_bubble:
      return "InterleavedZeroBubble";
    case PipelineSchedule::zbv:
      return "ZBVZeroBubble";
    default:
      return "1F1B";
  }
}

std::string parallelism(const ParallelSetup& p) {
  const std::int64_t shard = strategy_of(p).buckets ? 1 : shard_group(p) / std::max<std::int64_t>(p.context, 1);
  std::string out =
      fmt::format("\n[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n",
                  p.data / std::max<std::int64_t>(shard, 1), std::max<std::int64_t>(shard, 1));
  if (!strategy_of(p).buckets)
    out += fmt::format("fsdp_reshard_after_forward = \"{}\"\n", p.reshard_after_forward ? "always" : "never");
  out += fmt::format("tensor_parallel_degree = {}\n", p.tensor);
  // It divides the loss unless told otherwise.
  if (p.tensor > 1) out += fmt::format("disable_loss_parallel = {}\n", p.loss_parallel ? "false" : "true");
  out += fmt::format("pipeline_parallel_degree = {}\n", p.pipeline);
  if (p.pipeline > 1) out += fmt::format("pipeline_parallel_schedule = \"{}\"\n", schedule_name(p));
  out += fmt::format("context_parallel_degree = {}\n", p.context);
  if (p.expert > 1) out += fmt::format("expert_parallel_degree = {}\n", p.expert);
  return out;
}

bool every_block(const TrainingSetup& s) {
  return s.checkpoint == std::vector<std::string>{"blocks"} && s.checkpoint_save.empty();
}

bool every_nth(const TrainingSetup& s) {
  return s.checkpoint.size() == 1 && s.checkpoint[0].starts_with("every:") && s.checkpoint_save.empty();
}

}  // namespace

std::vector<std::string> unsaid_in_torchtitan(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  std::vector<std::string> left;
  if (s.offload.optimizer)
    left.push_back("an optimizer in host memory (training.enable_cpu_offload moves the weights too)");
  if (s.offload.activations) left.push_back("activations in host memory");
  if (s.lora) left.push_back("adapters");
  if (p.tensor > 1 && !p.sequence_parallel) left.push_back("tensor parallelism without sequence parallelism");
  if (checkpoints(s) && !every_block(s) && !every_nth(s))
    left.push_back("exactly these checkpoints (mode = \"selective\" comes near)");
  if (s.compile) left.push_back("torch.compile of the whole module (compile.enable compiles block by block)");
  return left;
}

std::string torchtitan_settings(const TrainingSetup& s, const ModelParts& parts) {
  const ParallelSetup& p = s.parallel;
  std::string out = shell_lines(s);
  out += not_said(unsaid_in_torchtitan(s), "torchtitan");
  out += "[training]\n";
  const std::int64_t local =
      s.batch.value_or(1) * (p.pipeline > 1 ? std::max<std::int64_t>(p.micro_batches, p.pipeline) : 1);
  out += fmt::format("local_batch_size = {}\n", local);
  if (s.sequence) out += fmt::format("seq_len = {}\n", *s.sequence);
  out += fmt::format("global_batch_size = {}\n", local * s.accumulate * std::max<std::int64_t>(p.data, 1));
  if (is_pure(s.precision)) out += fmt::format("dtype = \"{}\"\n", is_bf16(s.precision) ? "bfloat16" : "float16");
  const bool half_products = is_amp(s.precision) || p.param_dtype == DType::bfloat16;
  out += fmt::format(
      "mixed_precision_param = \"{}\"\n",
      half_products ? (is_bf16(s.precision) || p.param_dtype == DType::bfloat16 ? "bfloat16" : "float16") : "float32");
  if (s.clip_grad_norm) out += "max_norm = 1.0\n";
  if (is_parallel(p)) out += parallelism(p);
  out += fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", parts.checkpointed.empty() ? "none"
                                                                   : every_block(s)           ? "full"
                                                                                              : "selective");
  if (every_nth(s)) out += fmt::format("selective_ac_option = \"{}\"\n", s.checkpoint[0].substr(6));
  out += fmt::format("\n[optimizer]\nname = \"{}\"\nimplementation = \"{}\"\n",
                     s.optimizer.kind == OptimizerKind::adam ? "Adam" : "AdamW",
                     s.optimizer.impl == OptimizerImpl::fused  ? "fused"
                     : s.optimizer.impl == OptimizerImpl::loop ? "for-loop"
                                                               : "foreach");
  if (s.optimizer.kind != OptimizerKind::adam && s.optimizer.kind != OptimizerKind::adamw)
    out += "# torchtitan has Adam and AdamW only\n";
  return out;
}

}  // namespace memplan::cli
