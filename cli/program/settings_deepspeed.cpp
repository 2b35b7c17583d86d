// ds_config.json (deepspeed.ai/docs/config-json).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/program/settings.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/setup/optimizers.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

std::vector<std::string> unsaid_in_deepspeed(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  std::vector<std::string> left;
  if (s.offload.activations)
    left.push_back("activations in host memory (torch.autograd.graph.save_on_cpu around the forward pass)");
  if (s.lora) left.push_back("adapters (--for pytorch prints the lines)");
  if (p.pipeline > 1)
    left.push_back(fmt::format("{} pipeline stages (deepspeed.pipe.PipelineModule(layers, num_stages={}))", p.pipeline,
                               p.pipeline));
  if (p.loss_parallel) left.push_back("a loss that is divided among tensor-parallel ranks");
  if (p.context > 1) left.push_back("this context parallelism");
  if (p.expert > 1) left.push_back(fmt::format("expert parallelism (deepspeed.moe.layer.MoE(ep_size={}))", p.expert));
  if (s.compile) left.push_back("torch.compile of the whole module (engine.compile() does it)");
  return left;
}

namespace {

/// Without torch_adam it would be DeepSpeed's own fused Adam, which a compiler makes when it is first used and which
/// needs the memory of the fused one of PyTorch; with the state in host memory it has to be DeepSpeed's. Null: given to
/// deepspeed.initialize by the script.
nlohmann::ordered_json optimizer_of(const TrainingSetup& s) {
  nlohmann::ordered_json parameters{{"lr", 1e-4}};
  if (!optimizer_model(s.optimizer.kind).adam || s.optimizer.amsgrad) return nullptr;
  if (!s.offload.optimizer) {
    parameters["torch_adam"] = true;
    const OptimizerImpl impl = optimizer_of_rank(s).impl;
    if (impl == OptimizerImpl::fused) parameters["fused"] = true;
    if (impl == OptimizerImpl::loop) parameters["foreach"] = false;
  }
  return {{"type", s.optimizer.kind == OptimizerKind::adam ? "Adam" : "AdamW"}, {"params", parameters}};
}

}  // namespace

std::string deepspeed_settings(const TrainingSetup& s, const ModelParts& parts) {
  const ParallelSetup& p = s.parallel;
  nlohmann::ordered_json j;
  j["train_micro_batch_size_per_gpu"] = s.batch.value_or(1);
  j["gradient_accumulation_steps"] = s.accumulate;
  if (s.clip_grad_norm) j["gradient_clipping"] = 1.0;
  if (is_amp(s.precision))
    j["torch_autocast"] = {{"enabled", true}, {"dtype", is_bf16(s.precision) ? "bfloat16" : "float16"}};
  if (is_pure(s.precision)) j[is_bf16(s.precision) ? "bf16" : "fp16"] = {{"enabled", true}};
  if (const auto optimizer = optimizer_of(s); !optimizer.is_null()) j["optimizer"] = optimizer;
  const int stage = strategy_of(p).units ? 3 : strategy_of(p).stage;
  // The engine offloads with sharded states only; on one GPU they are one shard.
  j["zero_optimization"] = {{"stage", s.offload.optimizer && stage == 0 ? 2 : stage}};
  if (s.offload.optimizer) j["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (s.offload.parameters) j["zero_optimization"]["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (p.overlap_communication) j["zero_optimization"]["overlap_comm"] = *p.overlap_communication;
  if (p.reduce_bucket != ParallelSetup().reduce_bucket) j["zero_optimization"]["reduce_bucket_size"] = p.reduce_bucket;
  if (p.tensor > 1) j["tensor_parallel"] = {{"autotp_size", p.tensor}};
  std::string out = shell_lines(s);
  if (is_parallel(p))
    out += fmt::format("# deepspeed --num_gpus {} train.py --deepspeed_config ds_config.json\n",
                       std::min<std::int64_t>(p.gpus, 8));
  if (strategy_of(p).units)
    out += "# estimated with fully_shard (FSDP2), of which stage 3 is the counterpart: re-check with --zero 3\n";
  if (stage == 3)
    out +=
        "# build the model inside of `with deepspeed.zero.Init(config_dict_or_path=\"ds_config.json\")`: no device "
        "then holds all of it\n";
  if (s.offload.optimizer && stage == 0)
    out += "# DeepSpeed offloads the optimizer with sharded states, so the stage is 2\n";
  if (j.contains("optimizer"))
    out += "# lr is an example; without an optimizer in the file, the script hands over its own\n";
  TrainingSetup in_model = s;
  in_model.precision = Precision::fp32;  // the engine casts
  in_model.lora.reset();
  in_model.compile = false;
  const std::string lines = model_lines(in_model, parts);
  return out + not_said(unsaid_in_deepspeed(s), "ds_config.json") + j.dump(2) + "\n" +
         (lines.empty() ? "" : "# in train.py, before deepspeed.initialize:\n" + lines);
}

}  // namespace memplan::cli
