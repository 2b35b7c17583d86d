#include <fmt/format.h>

#include "cli/program/pieces.h"
#include "cli/program/settings.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

std::string plugin(const TrainingSetup& s, const ModelParts& parts) {
  const ParallelSetup& p = s.parallel;
  if (!is_parallel(p)) return {};
  if (strategy_of(p).stage > 0)
    return fmt::format(", deepspeed_plugin=DeepSpeedPlugin(zero_stage={}{})", strategy_of(p).stage,
                       s.offload.optimizer ? ", offload_optimizer_device=\"cpu\"" : "");
  if (!strategy_of(p).units) return {};
  std::string dtypes;
  for (const auto& [name, dtype] : {std::pair{"param_dtype", p.param_dtype}, std::pair{"reduce_dtype", p.reduce_dtype}})
    if (dtype) dtypes += fmt::format("{}{}=torch.{}", dtypes.empty() ? "" : ", ", name, name_of(*dtype));
  if (!dtypes.empty())
    dtypes = fmt::format(", mixed_precision_policy=torch.distributed.fsdp.MixedPrecisionPolicy({})", dtypes);
  return fmt::format(
      ", fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward={}, "
      "auto_wrap_policy=\"transformer_based_wrap\", transformer_cls_names_to_wrap=[{}]{})",
      p.reshard_after_forward ? "True" : "False", python_names(parts.unit_classes), dtypes);
}

}  // namespace

std::vector<std::string> unsaid_in_accelerate(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  std::vector<std::string> left;
  if (p.tensor > 1) left.push_back("this tensor parallelism (--for pytorch and --for torchtitan have)");
  if (p.pipeline > 1) left.push_back("pipeline stages");
  if (p.context > 1) left.push_back("this context parallelism");
  if (p.expert > 1) left.push_back("expert parallelism");
  return left;
}

std::string accelerate_settings(const TrainingSetup& s, const ModelParts& parts) {
  const ParallelSetup& p = s.parallel;
  std::string out = shell_lines(s);
  if (is_parallel(p)) out += fmt::format("# accelerate launch --num_processes {} train.py\n", p.gpus);
  out += not_said(unsaid_in_accelerate(s), "Accelerator") + model_lines(s, parts);
  const char* mixed = s.precision == Precision::amp_bf16 ? "bf16" : s.precision == Precision::amp_fp16 ? "fp16" : "no";
  // Otherwise Accelerate keeps whole gradients until the last micro-batch; here they are divided after each, as
  // estimated.
  const bool divided = is_parallel(p) && strategy_of(p).units && s.accumulate > 1;
  const std::string steps =
      divided
          ? fmt::format("gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps={}, sync_each_batch=True)",
                        s.accumulate)
          : fmt::format("gradient_accumulation_steps={}", s.accumulate);
  out += fmt::format("accelerator = Accelerator(mixed_precision=\"{}\", {}{})\n", mixed, steps, plugin(s, parts));
  const bool host = s.offload.optimizer && strategy_of(p).buckets;
  out += "parameters = [p for p in model.parameters() if p.requires_grad]\n";
  if (host || !s.offload.optimizer) out += optimizer_classes(s, ", lr=lr");
  out += "optimizer = " +
         (host ? std::string("HostOptimizer()   # not handed to accelerator.prepare")
               : optimizer_text(s.optimizer, "parameters, lr=lr")) +
         "\n";
  out += fmt::format("loader = DataLoader(dataset, batch_size={})\n", s.batch.value_or(1));
  out += host ? "model, loader = accelerator.prepare(model, loader)\n"
              : "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n";
  // The name would keep the whole weights on the device, and clip what has no gradients.
  if (is_parallel(p) && strategy_of(p).units)
    out += "parameters = [p for p in model.parameters() if p.requires_grad]   # prepare() made others\n";
  out += "for batch, target in loader:\n    with accelerator.accumulate(model):\n";
  std::string in = "        ";
  if (s.offload.activations)
    out += in + "with torch.autograd.graph.save_on_cpu(pin_memory=True):\n" + in +
           "    loss = loss_fn(model(batch), target)\n";
  else
    out += in + "loss = loss_fn(model(batch), target)\n";
  out += in + "accelerator.backward(loss)\n";
  if (s.clip_grad_norm)
    out += in + "if accelerator.sync_gradients:\n" + in + "    accelerator.clip_grad_norm_(parameters, 1.0)\n";
  if (host)
    return out + in + "if accelerator.sync_gradients:\n" + in + "    optimizer.step()\n" + in +
           "    optimizer.zero_grad()\n";
  return out + in + "optimizer.step()\n" + in + "optimizer.zero_grad()\n";
}

}  // namespace memplan::cli
