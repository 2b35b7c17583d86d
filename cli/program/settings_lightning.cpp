// lightning.Trainer (lightning.ai/docs/pytorch/stable/common/trainer.html).
#include <fmt/format.h>

#include "cli/program/pieces.h"
#include "cli/program/placement.h"
#include "cli/program/settings.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

std::string strategy(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  const int stage = strategy_of(p).stage;
  if (stage > 0)
    return fmt::format("    strategy=\"deepspeed_stage_{}{}\",\n", stage,
                       s.offload.optimizer && stage > 1 ? "_offload" : "");
  if (!is_parallel(p)) return {};
  if (strategy_of(p).units || p.tensor > 1)
    return fmt::format(
        "    strategy=lightning.pytorch.strategies.ModelParallelStrategy(data_parallel_size={}, "
        "tensor_parallel_size={}),\n",
        p.data, p.tensor);
  return "    strategy=\"ddp\",\n";
}

}  // namespace

std::vector<std::string> unsaid_in_lightning(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  std::vector<std::string> left;
  if (s.offload.activations)
    left.push_back("activations in host memory (torch.autograd.graph.save_on_cpu in training_step)");
  if (p.loss_parallel) left.push_back("a loss that is divided among tensor-parallel ranks (it is the model's)");
  if (p.pipeline > 1) left.push_back("pipeline stages");
  if (p.context > 1) left.push_back("context parallelism");
  if (p.expert > 1) left.push_back("expert parallelism");
  return left;
}

std::string lightning_settings(const TrainingSetup& s, const ModelParts& parts) {
  const ParallelSetup& p = s.parallel;
  std::string out = shell_lines(s);
  out += not_said(unsaid_in_lightning(s), "Trainer") + model_lines(s, parts);
  const char* precision = s.precision == Precision::amp_bf16   ? "bf16-mixed"
                          : s.precision == Precision::amp_fp16 ? "16-mixed"
                          : s.precision == Precision::bf16     ? "bf16-true"
                          : s.precision == Precision::fp16     ? "16-true"
                                                               : "32-true";
  // DDPStrategy._setup_model: blocks that gradients were accumulated from wait for an event of that stream.
  if (is_parallel(p) && strategy_of(p).buckets)
    out +=
        "# Lightning makes DDP in a CUDA stream of its own, which the estimate does not know: the allocator reserves "
        "more\n";
  if (is_parallel(p) && (strategy_of(p).units || p.tensor > 1))
    out +=
        "# LightningModule.configure_model shards the model with self.device_mesh: `--for pytorch` prints the calls\n";
  out += "parameters = [p for p in model.parameters() if p.requires_grad]\n" + optimizer_classes(s, ", lr=lr");
  const std::string optimizer =
      s.offload.optimizer
          ? std::string("HostOptimizer()   # with automatic_optimization = False: it is no torch.optim.Optimizer")
          : optimizer_text(s.optimizer, "parameters, lr=lr");
  out += "optimizer = " + optimizer + "\n";
  out += fmt::format("trainer = lightning.Trainer(\n    precision=\"{}\",\n    accumulate_grad_batches={},\n",
                     precision, s.accumulate);
  if (is_parallel(p))
    out += fmt::format("    devices={},\n    num_nodes={},\n", std::min<std::int64_t>(p.gpus, 8), (p.gpus + 7) / 8);
  out += strategy(s);
  if (s.clip_grad_norm) out += "    gradient_clip_val=1.0,\n";
  return out +
         fmt::format(")\n# DataLoader(batch_size={}); configure_optimizers returns `optimizer`\n", s.batch.value_or(1));
}

}  // namespace memplan::cli
