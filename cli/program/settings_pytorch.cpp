#include <fmt/format.h>

#include "cli/program/pieces.h"
#include "cli/program/placement.h"
#include "cli/program/settings.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

std::string inference(const TrainingSetup& s) {
  std::string out = "model.eval()\nfor batch in loader:\n    batch = batch.to(\"cuda\")\n    with torch.no_grad()";
  if (is_amp(s.precision)) out += fmt::format(", torch.autocast(\"cuda\", dtype={})", half_name(s.precision));
  return out + ":\n        output = model(batch)\n";
}

/// The order of lines is that of the program that is estimated (estimators/runtime/torch/step/steps.cpp).
std::string training_loop(const TrainingSetup& s) {
  const bool scaler = s.precision == Precision::amp_fp16, many = s.accumulate > 1,
             stepped = s.optimizer.kind != OptimizerKind::none;
  const std::int64_t batch = s.batch.value_or(1);
  const ParallelSetup& p = s.parallel;
  std::string out = fmt::format("for batch, target in loader:   # {} sample{} at a time{}\n", batch * s.accumulate,
                                batch * s.accumulate == 1 ? "" : "s", is_parallel(p) ? " and rank" : "");
  const std::string zero = fmt::format("{}.zero_grad(set_to_none=True)\n", stepped ? "optimizer" : "model");
  std::string in = "    ";
  if (many) {
    out +=
        in + zero + in + fmt::format("for k, (x, y) in enumerate(zip(batch.split({0}), target.split({0}))):\n", batch);
    in += "    ";
    out += in + "x, y = x.to(\"cuda\"), y.to(\"cuda\")\n";
    // FSDP reduces after every micro-batch, as estimated: set_requires_gradient_sync(False) would keep whole gradients.
    if (is_parallel(p) && strategy_of(p).buckets && p.data > 1) {
      out += in + fmt::format("with model.no_sync() if k < {} else contextlib.nullcontext():\n", s.accumulate - 1);
      in += "    ";
    }
  } else {
    out += in + "x, y = batch.to(\"cuda\"), target.to(\"cuda\")\n" + in + zero;
  }
  // Its backward pass belongs to it as well.
  if (p.loss_parallel) {
    out += in + "with loss_parallel():\n";
    in += "    ";
  }
  std::string body = in;
  const auto with = [&](const std::string& context) {
    out += body + "with " + context + ":\n";
    body += "    ";
  };
  if (s.offload.activations) with("torch.autograd.graph.save_on_cpu(pin_memory=True)");
  if (is_amp(s.precision)) with(fmt::format("torch.autocast(\"cuda\", dtype={})", half_name(s.precision)));
  out += body + "output = model(x)\n" + body + "loss = loss_fn(output, y)" +
         (many ? fmt::format(" / {}", s.accumulate) : "") + "\n";
  out += in + (scaler ? "scaler.scale(loss).backward()\n" : "loss.backward()\n");
  if (s.clip_grad_norm) {
    if (scaler && stepped) out += "    scaler.unscale_(optimizer)\n";
    out += "    torch.nn.utils.clip_grad_norm_(parameters, 1.0)\n";
  }
  if (stepped) out += scaler ? "    scaler.step(optimizer)\n    scaler.update()\n" : "    optimizer.step()\n";
  return out + (s.empty_cache ? "    torch.cuda.empty_cache()\n" : "");
}

}  // namespace

std::string pytorch_settings(const TrainingSetup& s, const ModelParts& parts) {
  std::string out;
  for (const auto& [name, value] : process_variables(s))
    out += fmt::format("{}os.environ[\"{}\"] = {}   # before the first allocation\n",
                       out.empty() ? "import os\n\n" : "", name, python_string(value));
  if (!out.empty()) out += "\n";
  out += "import torch\n\n" + model_lines(s, parts);
  if (s.offload.parameters) {
    out += "from accelerate import cpu_offload\n\ncpu_offload(model, torch.device(\"cuda\", 0))\n";
  } else if (has_short_program(s.parallel)) {
    out += place_on_devices(s.parallel, parts);
  } else {
    out += fmt::format(
        "# {}: more than a few lines of PyTorch; --for torchtitan, --for deepspeed and --for megatron say it in "
        "settings\n",
        describe(s.parallel));
  }
  if (s.kv_cache) out += "# the keys and values: `memplan explain MODEL --program` makes them\n";
  if (s.mode == Mode::inference) return out + inference(s);
  out += "parameters = [p for p in model.parameters() if p.requires_grad]\n" + optimizer_classes(s, ", lr=lr");
  if (s.optimizer.kind != OptimizerKind::none)
    out += "optimizer = " +
           (s.offload.optimizer ? std::string("HostOptimizer()")
                                : optimizer_text(optimizer_of_rank(s), "parameters, lr=lr")) +
           "\n";
  if (s.precision == Precision::amp_fp16) out += "scaler = torch.amp.GradScaler(\"cuda\")\n";
  return out + training_loop(s);
}

}  // namespace memplan::cli
