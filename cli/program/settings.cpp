#include "cli/program/settings.h"

#include <fmt/format.h>

#include "cli/program/pieces.h"
#include "estimators/base/shell.h"
#include "estimators/runtime/torch/profile/environment.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan::cli {

bool is_pure(Precision p) { return p == Precision::bf16 || p == Precision::fp16; }
bool is_bf16(Precision p) { return p == Precision::amp_bf16 || p == Precision::bf16; }

bool checkpoints(const TrainingSetup& s) { return !s.checkpoint.empty() || s.checkpoint_optimal; }

std::string shell_lines(const TrainingSetup& s) {
  std::string out;
  for (const auto& [name, value] : process_variables(s))
    out += fmt::format("export {}={}   # before the process starts\n", name, shell_word(value));
  return out;
}

std::vector<std::pair<std::string, std::string>> process_variables(const TrainingSetup& s) {
  std::vector<std::pair<std::string, std::string>> out;
  if (s.allocator.expandable_segments) out.emplace_back(profile_of(s).allocator_variable, "expandable_segments:True");
  for (const auto& [name, value] : s.runtime.environment)
    if (!sets_allocator(name)) out.emplace_back(name, value);
  return out;
}

std::string budget_line(const TrainingSetup& s) {
  if (s.activation_memory_budget >= 1) return {};
  return fmt::format("torch._functorch.config.activation_memory_budget = {:g}\n", s.activation_memory_budget);
}

std::string compile_lines(const TrainingSetup& s) { return budget_line(s) + "model = torch.compile(model)\n"; }

std::string model_lines(const TrainingSetup& s, const ModelParts& parts) {
  std::string out = attention_text(s.attention) + frozen_text(s.frozen);
  if (s.fp8 != Fp8::none)
    out += fmt::format(
        "# transformer_engine.pytorch.Linear in the place of every nn.Linear but the last, {}\n"
        "# with transformer_engine.pytorch.fp8_autocast(enabled=True) around the forward pass and is_first_microbatch "
        "given\n",
        s.fp8 == Fp8::primary ? "built under transformer_engine.pytorch.fp8_model_init()"
                              : "beside weights of bfloat16");
  if (is_pure(s.precision)) out += fmt::format("model.to({})\n", half_name(s.precision));
  if (s.channels_last) out += "model.to(memory_format=torch.channels_last)   # and the images too\n";
  const bool training = s.mode != Mode::inference;
  if (training && s.lora) out += adapters_text(*s.lora, parts.adapted);
  if (training && !parts.checkpointed.empty()) out += checkpoint_text(s, parts, s.lora.has_value());
  return out + (s.compile ? compile_lines(s) : "");
}

std::string not_said(const std::vector<std::string>& left, const std::string& framework) {
  std::string out;
  for (const std::string& what : left)
    out += fmt::format("# {} has no setting for {}: it is part of the estimate\n", framework, what);
  return out;
}

std::string launch_line(const ParallelSetup& p) {
  if (!is_parallel(p)) return {};
  if (p.gpus <= 8) return fmt::format("# torchrun --nproc-per-node={} train.py\n", p.gpus);
  return fmt::format(
      "# torchrun --nnodes={} --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 train.py\n",
      (p.gpus + 7) / 8);
}

std::vector<std::string> unsaid_in(const std::string& framework, const TrainingSetup& setup) {
  if (framework == "hf") return unsaid_in_hf(setup);
  if (framework == "accelerate") return unsaid_in_accelerate(setup);
  if (framework == "deepspeed") return unsaid_in_deepspeed(setup);
  if (framework == "megatron") return unsaid_in_megatron(setup);
  if (framework == "torchtitan") return unsaid_in_torchtitan(setup);
  if (framework == "lightning") return unsaid_in_lightning(setup);
  return {};
}

std::string framework_settings(const TrainingSetup& setup, const ModelParts& parts, const std::string& framework) {
  if (framework == "hf") return hf_settings(setup, parts);
  if (framework == "accelerate") return accelerate_settings(setup, parts);
  if (framework == "deepspeed") return deepspeed_settings(setup, parts);
  if (framework == "megatron") return megatron_settings(setup, parts);
  if (framework == "torchtitan") return torchtitan_settings(setup, parts);
  if (framework == "lightning") return lightning_settings(setup, parts);
  return pytorch_settings(setup, parts);
}

}  // namespace memplan::cli
