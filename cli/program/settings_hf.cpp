// TrainingArguments of transformers 5 (training_args.py); the optimizers' names are those of its OptimizerNames.
#include <fmt/format.h>

#include "cli/program/pieces.h"
#include "cli/program/settings.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

std::string optimizer_name(const OptimizerSetup& o) {
  switch (o.kind) {
    case OptimizerKind::adamw:
      return o.impl == OptimizerImpl::fused ? "adamw_torch_fused" : "adamw_torch";
    case OptimizerKind::adamw8bit:
      return "adamw_bnb_8bit";
    case OptimizerKind::adafactor_hf:
      return "adafactor";
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::adagrad:
      return "adagrad";
    case OptimizerKind::rmsprop:
      return "rmsprop";
    case OptimizerKind::lion:
      return "lion_32bit";
    default:
      return {};
  }
}

/// bf16=True under FSDP2: weights are gathered and gradients reduced in bfloat16.
bool bfloat16_policy(const ParallelSetup& p) {
  return p.param_dtype == DType::bfloat16 && p.reduce_dtype == DType::bfloat16;
}

/// Trainer checkpoints every block and nothing else.
bool every_block_alone(const TrainingSetup& s) {
  return s.checkpoint == std::vector<std::string>{"blocks"} && s.checkpoint_save.empty() && !s.checkpoint_optimal;
}

std::string sharding(const TrainingSetup& s, const ModelParts& parts) {
  const ParallelSetup& p = s.parallel;
  if (!is_parallel(p) || p.data * p.context == 1) return {};
  if (strategy_of(p).buckets)
    return p.bucket_cap_mib ? fmt::format("    ddp_bucket_cap_mb={},\n", *p.bucket_cap_mib) : std::string();
  if (!strategy_of(p).units) return "    deepspeed=\"ds_config.json\",   # --for deepspeed prints it\n";
  std::string out;
  if (s.accumulate > 1)
    out +=
        "    accelerator_config={\"gradient_accumulation_kwargs\": {\"sync_each_batch\": True}},   # divides gradients "
        "after every micro-batch\n";
  return out + fmt::format(
                   "    fsdp=\"{}\",\n    fsdp_config={{\"fsdp_version\": 2, \"reshard_after_forward\": {}, "
                   "\"transformer_layer_cls_to_wrap\": [{}]}},\n",
                   shard_group(p) < p.data * p.context ? "hybrid_shard auto_wrap" : "full_shard auto_wrap",
                   p.reshard_after_forward ? "True" : "False", python_names(parts.unit_classes));
}

}  // namespace

std::vector<std::string> unsaid_in_hf(const TrainingSetup& s) {
  std::vector<std::string> left;
  if (s.offload.activations) left.push_back("activations in host memory");
  if (s.offload.optimizer && strategy_of(s.parallel).buckets)
    left.push_back("the optimizer in host memory (deepspeed=\"ds_config.json\" has: --for deepspeed)");
  if (s.offload.parameters) left.push_back("weights in host memory");
  if (checkpoints(s) && !every_block_alone(s)) left.push_back("checkpoints of other modules than every block");
  if ((s.parallel.param_dtype || s.parallel.reduce_dtype) && !bfloat16_policy(s.parallel))
    left.push_back("this MixedPrecisionPolicy (bf16=True reduces gradients in bfloat16 as well)");
  if (s.parallel.tensor > 1) left.push_back("this tensor parallelism");
  if (s.parallel.pipeline > 1) left.push_back("pipeline stages");
  if (s.parallel.context > 1) left.push_back("context parallelism");
  if (s.parallel.expert > 1) left.push_back("expert parallelism");
  return left;
}

std::string hf_settings(const TrainingSetup& s, const ModelParts& parts) {
  TrainingSetup in_model = s;
  ModelParts own = parts;
  in_model.compile = false;
  if (is_pure(s.precision)) in_model.precision = Precision::fp32;  // from_pretrained makes the weights so
  if (every_block_alone(s)) own.checkpointed.clear();
  std::string out = shell_lines(s) + launch_line(s.parallel);
  out += not_said(unsaid_in_hf(s), "TrainingArguments");
  if (is_pure(s.precision))
    out += fmt::format("model = AutoModelForCausalLM.from_pretrained(name, dtype={})\n", half_name(s.precision));
  out += model_lines(in_model, own) + budget_line(s);
  out += "TrainingArguments(\n";
  out += fmt::format("    per_device_train_batch_size={},\n    gradient_accumulation_steps={},\n", s.batch.value_or(1),
                     s.accumulate);
  if (s.precision == Precision::amp_bf16 || bfloat16_policy(s.parallel)) out += "    bf16=True,\n";
  if (s.precision == Precision::amp_fp16) out += "    fp16=True,\n";
  if (every_block_alone(s))
    out += "    gradient_checkpointing=True,\n    gradient_checkpointing_kwargs={\"use_reentrant\": False},\n";
  out += sharding(s, parts);
  const std::string name = optimizer_name(s.optimizer);
  if (!name.empty())
    out += fmt::format("    optim=\"{}\",\n", name);
  else
    out += "    # pass the optimizer itself: Trainer(optimizers=(optimizer, None))\n";
  if (s.compile) out += "    torch_compile=True,\n";
  if (s.empty_cache) out += "    torch_empty_cache_steps=1,\n";
  out += s.clip_grad_norm ? "    max_grad_norm=1.0,\n" : "    max_grad_norm=0,   # no clipping, as estimated\n";
  return out + ")\n";
}

}  // namespace memplan::cli
