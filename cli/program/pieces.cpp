#include "cli/program/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/program/python.h"
#include "estimators/runtime/torch/autograd/checkpoint.h"
#include "estimators/setup/optimizers.h"

namespace memplan::cli {

const char* half_name(Precision p) {
  return p == Precision::amp_bf16 || p == Precision::bf16 ? "torch.bfloat16" : "torch.float16";
}

std::string optimizer_text(const OptimizerSetup& o, const std::string& over) {
  std::string arguments = over;
  const bool has_rate = over.find("lr=") != std::string::npos;
  if (o.kind == OptimizerKind::sgd && !has_rate) arguments += ", lr=0.01";
  if (o.kind == OptimizerKind::adafactor_hf && !has_rate) arguments += ", lr=1e-3";
  if (o.kind == OptimizerKind::adafactor_hf) arguments += ", scale_parameter=False, relative_step=False";  // Trainer's
  if (o.momentum > 0) arguments += fmt::format(", momentum={:g}", o.momentum);
  if (o.amsgrad) arguments += ", amsgrad=True";
  if (o.impl == OptimizerImpl::foreach) arguments += ", foreach=True";
  if (o.impl == OptimizerImpl::fused) arguments += ", fused=True";
  if (o.impl == OptimizerImpl::loop) arguments += ", foreach=False";
  if (o.kind == OptimizerKind::muon) return "MuonWithAdamW()";
  const char* made_by = optimizer_model(o.kind).python;
  return made_by ? made_by + ("(" + arguments + ")") : "None";
}

namespace {

/// The targets as they were typed, where peft reads them alike: names of modules wherever they stand, "q_proj" or
/// "*.q_proj". Nothing where there is another glob.
std::optional<std::string> peft_targets(const std::vector<std::string>& targets) {
  std::vector<std::string> names;
  for (const std::string& target : targets) {
    const std::string name = target.starts_with("*.") ? target.substr(2) : target;
    if (name.empty() || name.find_first_of("*?[].") != std::string::npos) return std::nullopt;
    names.push_back(name);
  }
  if (names.empty()) return std::nullopt;
  return "[" + python_names(names) + "]";
}

}  // namespace

std::string adapters_text(const LoraSetup& lora, const std::vector<std::string>& modules) {
  std::string p = "import peft\n\n";
  if (lora.quantized)
    p += "# The model comes from from_pretrained with BitsAndBytesConfig(load_in_4bit=True, "
         "bnb_4bit_quant_type=\"nf4\",\n"
         "# bnb_4bit_use_double_quant=True): every Linear but the last one is 4-bit.\n";
  return p + fmt::format(
                 "model = peft.get_peft_model(model, peft.LoraConfig(r={}, lora_dropout={:g}, target_modules={}))\n",
                 lora.rank, lora.dropout, peft_targets(lora.targets).value_or(python_list(modules)));
}

std::string optimizer_classes(const TrainingSetup& s, const std::string& arguments) {
  std::string p;
  if (s.optimizer.kind == OptimizerKind::muon && !s.offload.optimizer)
    p += "class MuonWithAdamW:\n    \"\"\"Muon for the hidden matrices; AdamW for embeddings, the last Linear and what "
         "is no matrix.\"\"\"\n\n"
         "    def __init__(self):\n"
         "        outside = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]\n"
         "        outside += [m.weight for m in model.modules() if type(m) is torch.nn.Linear][-1:]\n"
         "        hidden = [p for p in parameters if p.ndim == 2 and not any(p is o for o in outside)]\n"
         "        rest = [p for p in parameters if not any(p is h for h in hidden)]\n"
         "        self.parts = [torch.optim.Muon(hidden), torch.optim.AdamW(rest)]\n\n"
         "    def zero_grad(self, set_to_none=True):\n        for part in self.parts:\n            "
         "part.zero_grad(set_to_none=set_to_none)\n\n"
         "    def step(self):\n        for part in self.parts:\n            part.step()\n\n\n";
  if (s.offload.optimizer)
    p +=
        "class HostOptimizer:\n    \"\"\"The optimizer works on copies of the parameters in host memory.\"\"\"\n\n"
        "    def __init__(self):\n        self.copies = [torch.nn.Parameter(p.detach().to(\"cpu\")) for p in "
        "parameters]\n"
        "        self.optimizer = " +
        optimizer_text(s.optimizer, "self.copies" + arguments) +
        "\n\n"
        "    def zero_grad(self, set_to_none=True):\n        for p in parameters:\n            p.grad = None\n\n"
        "    def step(self):\n        for copy, p in zip(self.copies, parameters):\n            if p.grad is not "
        "None:\n"
        "                copy.grad = p.grad.to(\"cpu\")\n                p.grad = None\n        self.optimizer.step()\n"
        "        with torch.no_grad():\n            for copy, p in zip(self.copies, parameters):\n                "
        "p.copy_(copy)\n\n\n";
  return p;
}

namespace {

/// A stretch as a list of names and lists.
std::string python_stretch(const CheckpointStretch& stretch) {
  if (stretch.members.empty()) return python_string(stretch.path);
  std::string out;
  for (const CheckpointStretch& m : stretch.members) out += (out.empty() ? "" : ", ") + python_stretch(m);
  return "[" + out + "]";
}

/// Stretches inside of stretches: each list is one checkpoint around what it names.
std::string nested_checkpoints(const std::vector<CheckpointStretch>& stretches, const std::string& model) {
  std::string p =
      "\n\ndef chain(forwards, x, *args, **kwargs):\n    for forward in forwards:\n        x = forward(x, *args, "
      "**kwargs)\n    return x\n\n\n"
      "def modules_of(item):\n    return [" +
      model +
      ".get_submodule(item)] if isinstance(item, str) else [m for i in item for m in modules_of(i)]\n\n\n"
      "def forward_of(item):\n    if isinstance(item, str):\n        return modules_of(item)[0].forward\n"
      "    return functools.partial(checkpoint, functools.partial(chain, [forward_of(i) for i in item]), "
      "**settings)\n\n\nfor stretch in [\n";
  for (const CheckpointStretch& s : stretches) p += "    " + python_stretch(s) + ",\n";
  return p +
         "]:\n    first, *others = modules_of(stretch)\n    first.forward = forward_of(stretch)\n"
         "    for module in others:\n        module.forward = lambda x, *args, **kwargs: x\n";
}

}  // namespace

std::string checkpoint_text(const TrainingSetup& setup, const ModelParts& parts, bool adapted) {
  const auto& regions = parts.checkpointed;
  const std::string model = adapted ? "model.get_base_model()" : "model";
  std::string p =
      "import functools\n\nfrom torch.utils.checkpoint import checkpoint\n\nsettings = dict(use_reentrant=False)\n";
  if (!setup.checkpoint_save.empty()) {
    p += "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts\n\nkept = [\n";
    for (const std::string& op : kept_ops(setup.checkpoint_save))
      p += fmt::format("    torch.ops.aten.{}.default,\n", op.substr(op.find("::") + 2));
    p += "]\nsettings[\"context_fn\"] = functools.partial(create_selective_checkpoint_contexts, lambda context, op, "
         "*args, **kwargs: (\n"
         "    CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE))\n";
  }
  if (!parts.nested.empty()) return p + nested_checkpoints(parts.nested, model);
  const bool groups = std::any_of(regions.begin(), regions.end(), [](const auto& paths) { return paths.size() > 1; });
  if (!groups) {
    std::vector<std::string> names;
    for (const auto& paths : regions) names.push_back(paths.front());
    return p + "for name in " + python_list(names) + ":\n    module = " + model +
           ".get_submodule(name)\n    module.forward = functools.partial(checkpoint, module.forward, **settings)\n";
  }
  p += "\n\ndef chain(forwards, x, *args, **kwargs):\n    for forward in forwards:\n        x = forward(x, *args, "
       "**kwargs)\n    return x\n\n\nfor names in [\n";
  for (const auto& paths : regions) p += "    [" + python_names(paths) + "],\n";
  return p + "]:\n    modules = [" + model +
         ".get_submodule(name) for name in names]\n"
         "    run = functools.partial(chain, [module.forward for module in modules]) if len(modules) > 1 else "
         "modules[0].forward\n"
         "    modules[0].forward = functools.partial(checkpoint, run, **settings)\n"
         "    for module in modules[1:]:\n        module.forward = lambda x, *args, **kwargs: x\n";
}

std::string attention_text(AttentionBackend chosen) {
  if (chosen == AttentionBackend::automatic) return {};
  std::string p;
  for (const auto& [backend, name] :
       {std::pair{AttentionBackend::math, "math"}, std::pair{AttentionBackend::flash, "flash"},
        std::pair{AttentionBackend::efficient, "mem_efficient"}, std::pair{AttentionBackend::cudnn, "cudnn"}})
    p += fmt::format("torch.backends.cuda.enable_{}_sdp({})\n", name, backend == chosen ? "True" : "False");
  return p;
}

std::string frozen_text(const std::vector<std::string>& globs) {
  if (globs.empty()) return {};
  return fmt::format(
      "import fnmatch\n\nfor name, parameter in model.named_parameters():\n"
      "    parameter.requires_grad_(not any(fnmatch.fnmatchcase(name, glob) for glob in [{}]))\n",
      python_names(globs));
}

}  // namespace memplan::cli
