// Arguments of Megatron-LM's pretrain_gpt.py (megatron/training/arguments.py; the names as in its examples and
// documentation).
#include <fmt/format.h>

#include "cli/program/settings.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

class Arguments {
 public:
  void add(const std::string& words) { text_ += fmt::format(" \\\n    --{}", words); }
  void degree(const char* name, std::int64_t n) {
    if (n > 1) add(fmt::format("{} {}", name, n));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Blocks as a whole, or the products of attention; anything else has no argument.
bool add_recomputation(const TrainingSetup& s, Arguments& a) {
  if (s.checkpoint.empty()) return true;
  if (!s.checkpoint_save.empty() || s.checkpoint.size() != 1) return false;
  const std::string& what = s.checkpoint.front();
  if (what != "blocks" && !what.starts_with("groups:")) return false;
  a.add("recompute-granularity full");
  a.add("recompute-method uniform");
  a.add(fmt::format("recompute-num-layers {}", what == "blocks" ? "1" : what.substr(7)));
  return true;
}

const char* backend(AttentionBackend b) {
  switch (b) {
    case AttentionBackend::flash:
      return "flash";
    case AttentionBackend::cudnn:
      return "fused";
    case AttentionBackend::math:
      return "unfused";
    default:
      return nullptr;
  }
}

std::string launcher(std::int64_t gpus) {
  if (gpus <= 8) return fmt::format("torchrun --nproc-per-node={} pretrain_gpt.py", gpus);
  return fmt::format(
      "torchrun --nnodes={} --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 pretrain_gpt.py",
      (gpus + 7) / 8);
}

}  // namespace

std::vector<std::string> unsaid_in_megatron(const TrainingSetup& s) {
  const ParallelSetup& p = s.parallel;
  std::vector<std::string> left;
  if (Arguments unused; !add_recomputation(s, unused))
    left.push_back("exactly these checkpoints (--recompute-granularity selective --recompute-modules comes near)");
  if (is_amp(s.precision))
    left.push_back("autocast (its --bf16 and --fp16 convert the model: re-check with --precision)");
  if (s.lora) left.push_back("adapters");
  if (s.offload.any()) left.push_back("this offload");
  const OptimizerKind kind = s.optimizer.kind;
  if (kind != OptimizerKind::adam && kind != OptimizerKind::adamw && kind != OptimizerKind::sgd)
    left.push_back("this optimizer in the estimate's form");
  if (p.pipeline > 1 && (p.schedule == PipelineSchedule::gpipe || p.schedule == PipelineSchedule::zero_bubble))
    left.push_back("this schedule of the pipeline");
  if (s.compile) left.push_back("torch.compile of the whole module");
  return left;
}

std::string megatron_settings(const TrainingSetup& s, const ModelParts&) {
  const ParallelSetup& p = s.parallel;
  Arguments a;
  a.degree("tensor-model-parallel-size", p.tensor);
  if (p.sequence_parallel) a.add("sequence-parallel");
  a.degree("pipeline-model-parallel-size", p.pipeline);
  a.degree("num-virtual-stages-per-pipeline-rank", p.virtual_stages);
  a.degree("context-parallel-size", p.context);
  a.degree("expert-model-parallel-size", p.expert);
  const std::int64_t batch = s.batch.value_or(1),
                     micro = p.pipeline > 1 ? std::max(p.micro_batches, p.pipeline) : s.accumulate;
  a.add(fmt::format("micro-batch-size {}", batch));
  a.add(fmt::format("global-batch-size {}", batch * micro * std::max<std::int64_t>(p.data, 1)));
  if (s.sequence) a.add(fmt::format("seq-length {}", *s.sequence));
  if (s.precision == Precision::bf16) a.add("bf16");
  if (s.precision == Precision::fp16) a.add("fp16");
  if (s.fp8 != Fp8::none) {
    a.add("fp8-format hybrid");
    a.add("fp8-recipe delayed");
  }
  if (s.fp8 == Fp8::primary) a.add("fp8-param-gather");
  if (in_megatron(p) && strategy_of(p).state) a.add("use-distributed-optimizer");
  if (s.optimizer.kind == OptimizerKind::sgd) a.add("optimizer sgd");
  a.add(s.clip_grad_norm ? "clip-grad 1.0" : "clip-grad 0.0");
  if (const char* name = backend(s.attention)) a.add(fmt::format("attention-backend {}", name));
  add_recomputation(s, a);
  std::string out = shell_lines(s);
  if (!in_megatron(p))
    out += "# estimated with another runtime than Megatron-LM: re-check with --megatron or --dist-opt\n";
  return out + not_said(unsaid_in_megatron(s), "Megatron-LM") + "# beside the arguments of the model and its data\n" +
         launcher(std::max<std::int64_t>(p.gpus, 1)) + a.text() + "\n";
}

}  // namespace memplan::cli
