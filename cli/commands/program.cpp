// The reference program of a setup, as a script that anyone can run where PyTorch has a GPU. Its order of lines is
// the order of estimators/step/steps.cpp and of tests/accuracy/reference_program.py.
#include <fmt/format.h>

#include <algorithm>

#include "cli/answer.h"
#include "cli/commands/commands.h"
#include "cli/commands/parallel_program.h"
#include "cli/report/report.h"
#include "estimators/autograd/checkpoint.h"
#include "estimators/estimate/assumptions.h"
#include "estimators/estimate/checkpoint_plan.h"
#include "estimators/step/kv_cache.h"
#include "estimators/step/probe.h"
#include "estimators/strategies/lora.h"
#include "estimators/step/rank_model.h"

namespace memplan::cli {

namespace {

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::int64_t s : sizes) text += fmt::format("{}{}", text.empty() ? "" : ", ", s);
  return "(" + text + (sizes.size() == 1 ? ",)" : ")");
}

const char* half_name(Precision p) { return p == Precision::amp_bf16 || p == Precision::bf16 ? "torch.bfloat16" : "torch.float16"; }

std::string optimizer_text(const OptimizerSetup& o, const char* over = "parameters") {
  std::string arguments = over;
  if (o.kind == OptimizerKind::sgd) arguments += ", lr=0.01";
  if (o.momentum > 0) arguments += fmt::format(", momentum={:g}", o.momentum);
  if (o.amsgrad) arguments += ", amsgrad=True";
  if (o.impl == OptimizerImpl::foreach) arguments += ", foreach=True";
  if (o.impl == OptimizerImpl::fused) arguments += ", fused=True";
  if (o.impl == OptimizerImpl::loop) arguments += ", foreach=False";
  switch (o.kind) {
    case OptimizerKind::sgd: return "torch.optim.SGD(" + arguments + ")";
    case OptimizerKind::adam: return "torch.optim.Adam(" + arguments + ")";
    case OptimizerKind::adamw: return "torch.optim.AdamW(" + arguments + ")";
    case OptimizerKind::adagrad: return "torch.optim.Adagrad(" + arguments + ")";
    case OptimizerKind::rmsprop: return "torch.optim.RMSprop(" + arguments + ")";
    case OptimizerKind::adafactor: return "torch.optim.Adafactor(" + arguments + ")";
    case OptimizerKind::lion: return "__import__(\"lion_pytorch\").Lion(" + arguments + ")";
    case OptimizerKind::adamw8bit: return "__import__(\"bitsandbytes\").optim.AdamW8bit(" + arguments + ")";
    case OptimizerKind::muon: return "MuonWithAdamW()";
    case OptimizerKind::none: break;
  }
  return "None";
}

struct Shapes {
  std::vector<Input> inputs;
  std::vector<std::int64_t> target;
  std::string target_dtype;
  bool has_target = false;
  std::vector<std::string> adapted;       ///< modules with low-rank adapters
  std::vector<KvLayer> kv;
  std::vector<std::vector<std::string>> checkpointed;  ///< module paths; those of a group run as one
};

Shapes shapes_of(const Options& options) {
  const Device device = device_of(options).device;
  const Tape tape = take(with_planned_checkpoints(take(lower(take(load_model(options.argument, options.inputs)), options.setup)), options.setup, device));
  Shapes s;
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    s.inputs.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  if (options.setup.lora) s.adapted = adapter_targets(tape, *options.setup.lora);
  if (options.setup.kv_cache)
    probe_forward(tape, options.setup, device, [&](const Run&, const Environment& env) { s.kv = kv_layers(tape, env); });
  if (options.setup.mode == Mode::inference && !options.setup.keep_loss_history) return s;
  for (const CheckpointRegion& region : tape.checkpoints) {
    std::vector<std::string> paths{tape.scopes[static_cast<std::size_t>(region.scope)].path};
    for (std::int32_t other : region.others) paths.push_back(tape.scopes[static_cast<std::size_t>(other)].path);
    if (std::find(s.checkpointed.begin(), s.checkpointed.end(), paths) == s.checkpointed.end()) s.checkpointed.push_back(std::move(paths));
  }
  TrainingSetup one = options.setup;
  one.steps = 1;
  const Schedule schedule = take(run_steps(tape, one, device));
  for (const Allocation& a : schedule.allocations) {
    if (a.label < 0 || a.shape_at < 0 || schedule.names[static_cast<std::size_t>(a.label)] != "target") continue;
    const TensorShape& shape = schedule.shapes[static_cast<std::size_t>(a.shape_at)];
    s.target = shape.sizes;
    s.target_dtype = name_of(static_cast<DType>(shape.dtype));
    s.has_target = true;
    break;
  }
  return s;
}

/// The loss as the estimate takes it: cross entropy over the last (or the second, for images) dimension.
std::string loss_text(const TrainingSetup& setup, const Shapes& shapes) {
  if (setup.loss == Loss::mse) return "    return torch.nn.functional.mse_loss(output, y)\n";
  if (!shapes.has_target) return "    return output if output.dim() == 0 else output.sum()\n";
  return "    if output.dim() in (2, 4):\n        return torch.nn.functional.cross_entropy(output, y)\n"
         "    return torch.nn.functional.cross_entropy(output.flatten(0, -2), y.flatten())\n";
}

std::string list_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("    \"{}\",\n", clean(word));
  return "[\n" + text + "]";
}

std::string adapters_text(const LoraSetup& lora, const std::vector<std::string>& modules) {
  std::string p = "import peft\n\n";
  if (lora.quantized)
    p += "# The model comes from from_pretrained with BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\",\n"
         "# bnb_4bit_use_double_quant=True): every Linear but the last one is 4-bit.\n";
  return p + fmt::format("model = peft.get_peft_model(model, peft.LoraConfig(r={}, lora_dropout={:g}, target_modules={}))\n", lora.rank, lora.dropout, list_text(modules));
}

/// Static keys and values: one tensor each per layer.
std::string kv_cache_text(const KvCacheSetup& setup, const std::vector<KvLayer>& layers) {
  const std::int64_t tokens = setup.sequences * ((setup.length + setup.block - 1) / setup.block * setup.block);
  std::string p = "cache = [torch.empty(size, dtype=dtype, device=\"cuda\") for size, dtype in [\n";
  for (const KvLayer& l : layers)
    for (const std::int64_t dim : {l.key_dim, l.value_dim})
      p += fmt::format("    (({}, {}, {}), torch.{}),\n", tokens, l.heads, dim, name_of(setup.dtype.value_or(l.dtype)));
  return p + "]]\n";
}

/// Optimizers that are more than one line.
std::string optimizer_classes(const TrainingSetup& s) {
  std::string p;
  if (s.optimizer.kind == OptimizerKind::muon && !s.offload.optimizer)
    p += "class MuonWithAdamW:\n    \"\"\"Muon for the hidden matrices; AdamW for embeddings, the last Linear and what is no matrix.\"\"\"\n\n"
         "    def __init__(self):\n"
         "        outside = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]\n"
         "        outside += [m.weight for m in model.modules() if type(m) is torch.nn.Linear][-1:]\n"
         "        hidden = [p for p in parameters if p.ndim == 2 and not any(p is o for o in outside)]\n"
         "        rest = [p for p in parameters if not any(p is h for h in hidden)]\n"
         "        self.parts = [torch.optim.Muon(hidden), torch.optim.AdamW(rest)]\n\n"
         "    def zero_grad(self, set_to_none=True):\n        for part in self.parts:\n            part.zero_grad(set_to_none=set_to_none)\n\n"
         "    def step(self):\n        for part in self.parts:\n            part.step()\n\n\n";
  if (s.offload.optimizer)
    p += "class HostOptimizer:\n    \"\"\"The optimizer works on copies of the parameters in host memory.\"\"\"\n\n"
         "    def __init__(self):\n        self.copies = [torch.nn.Parameter(p.detach().to(\"cpu\")) for p in parameters]\n"
         "        self.optimizer = " + optimizer_text(s.optimizer, "self.copies") + "\n\n"
         "    def zero_grad(self, set_to_none=True):\n        for p in parameters:\n            p.grad = None\n\n"
         "    def step(self):\n        for copy, p in zip(self.copies, parameters):\n            if p.grad is not None:\n"
         "                copy.grad = p.grad.to(\"cpu\")\n                p.grad = None\n        self.optimizer.step()\n"
         "        with torch.no_grad():\n            for copy, p in zip(self.copies, parameters):\n                p.copy_(copy)\n\n\n";
  return p;
}

/// Wraps the checkpointed modules, and modules that run as one stretch into the first of them.
std::string checkpoint_text(const TrainingSetup& setup, const std::vector<std::vector<std::string>>& regions, bool adapted) {
  const std::string model = adapted ? "model.get_base_model()" : "model";
  std::string p = "import functools\n\nfrom torch.utils.checkpoint import checkpoint\n\nsettings = dict(use_reentrant=False)\n";
  if (!setup.checkpoint_save.empty()) {
    p += "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts\n\nkept = [\n";
    for (const std::string& op : kept_ops(setup.checkpoint_save)) p += fmt::format("    torch.ops.aten.{}.default,\n", op.substr(op.find("::") + 2));
    p += "]\nsettings[\"context_fn\"] = functools.partial(create_selective_checkpoint_contexts, lambda context, op, *args, **kwargs: (\n"
         "    CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE))\n";
  }
  const bool groups = std::any_of(regions.begin(), regions.end(), [](const auto& paths) { return paths.size() > 1; });
  if (!groups) {
    p += "for name in [\n";
    for (const auto& paths : regions) p += fmt::format("    \"{}\",\n", clean(paths.front()));
    return p + "]:\n    module = " + model + ".get_submodule(name)\n    module.forward = functools.partial(checkpoint, module.forward, **settings)\n";
  }
  p += "\n\ndef chain(forwards, x, *args, **kwargs):\n    for forward in forwards:\n        x = forward(x, *args, **kwargs)\n    return x\n\n\nfor names in [\n";
  for (const auto& paths : regions) {
    p += "    [";
    for (const std::string& path : paths) p += fmt::format("{}\"{}\"", path == paths.front() ? "" : ", ", clean(path));
    p += "],\n";
  }
  return p + "]:\n    modules = [" + model + ".get_submodule(name) for name in names]\n"
             "    run = functools.partial(chain, [module.forward for module in modules]) if len(modules) > 1 else modules[0].forward\n"
             "    modules[0].forward = functools.partial(checkpoint, run, **settings)\n"
             "    for module in modules[1:]:\n        module.forward = lambda x, *args, **kwargs: x\n";
}

}  // namespace

std::string reference_program(const Options& options) {
  const TrainingSetup& s = options.setup;
  const Shapes shapes = shapes_of(options);
  const bool training = s.mode == Mode::training;
  const bool amp = s.precision == Precision::amp_bf16 || s.precision == Precision::amp_fp16;
  const bool pure = s.precision == Precision::bf16 || s.precision == Precision::fp16;
  const bool scaler = training && s.precision == Precision::amp_fp16;
  const bool optimizer = training && s.optimizer.kind != OptimizerKind::none;

  std::string p = fmt::format(
      "# The program whose memory `memplan` estimates for this setup ({}, {}).\n"
      "# Run it where PyTorch 2.11 has a GPU, with the function that builds the model:\n"
      "#     python program.py torchvision.models:resnet50\n", name_of(s.mode), name_of(s.precision));
  if (!options.alloc_conf.empty()) p += fmt::format("import os\n\nos.environ[\"PYTORCH_ALLOC_CONF\"] = \"{}\"\n", clean(options.alloc_conf));
  p += "import importlib\nimport sys\n\nimport torch\n\n\n"
       "def build():\n    module, function = sys.argv[1].split(\":\")\n    return getattr(importlib.import_module(module), function)()\n\n\n"
       "def first_floating(output):\n"
       "    \"\"\"The loss is taken of the first floating tensor that the model returns.\"\"\"\n"
       "    if torch.is_tensor(output):\n        return output if output.is_floating_point() else None\n"
       "    for item in output.values() if hasattr(output, \"values\") else output:\n"
       "        found = first_floating(item) if item is not None else None\n        if found is not None:\n            return found\n\n\n";
  if (training || s.keep_loss_history) p += "def loss_fn(output, y):\n    output = first_floating(output)\n" + loss_text(s, shapes) + "\n\n";
  p += fmt::format("model = build()\nmodel.train({})\n", training ? "True" : "False");
  if (s.attention == AttentionBackend::math || s.attention == AttentionBackend::flash || s.attention == AttentionBackend::efficient ||
      s.attention == AttentionBackend::cudnn) {
    for (const auto& [backend, name] : {std::pair{AttentionBackend::math, "math"}, std::pair{AttentionBackend::flash, "flash"},
                                        std::pair{AttentionBackend::efficient, "mem_efficient"}, std::pair{AttentionBackend::cudnn, "cudnn"}})
      p += fmt::format("torch.backends.cuda.enable_{}_sdp({})\n", name, backend == s.attention ? "True" : "False");
  }
  if (!s.frozen.empty()) {
    std::string globs;
    for (const std::string& g : s.frozen) globs += fmt::format("{}\"{}\"", globs.empty() ? "" : ", ", clean(g));
    p += fmt::format("import fnmatch\n\nfor name, parameter in model.named_parameters():\n"
                     "    parameter.requires_grad_(not any(fnmatch.fnmatchcase(name, glob) for glob in [{}]))\n", globs);
  }
  if (pure) p += fmt::format("model.to({})\n", half_name(s.precision));
  if (s.channels_last) p += "model.to(memory_format=torch.channels_last)\n";
  if (s.lora && training) p += adapters_text(*s.lora, shapes.adapted);
  if (!shapes.checkpointed.empty()) p += checkpoint_text(s, shapes.checkpointed, s.lora.has_value());
  p += "host_x = [\n";
  for (const Input& i : shapes.inputs) {
    const auto dtype = dtype_from_name(i.dtype);
    const bool converted = pure && dtype && is_floating(*dtype);
    p += fmt::format("    torch.zeros({}, dtype={}),  # {}\n", sizes_text(i.sizes), converted ? half_name(s.precision) : "torch." + i.dtype, clean(i.name));
  }
  p += "]\n";
  if (training || s.keep_loss_history) p += shapes.has_target ? fmt::format("host_y = torch.zeros({}, dtype=torch.{})\n", sizes_text(shapes.target), shapes.target_dtype) : "";
  if (s.channels_last) p += "host_x = [t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in host_x]\n";
  p += s.offload.parameters ? "\nfrom accelerate import cpu_offload\n\ncpu_offload(model, torch.device(\"cuda\", 0))\nx = [None] * len(host_x)\n"
                            : "\n" + place_on_devices(options) + "x = [None] * len(host_x)\n";
  if (s.kv_cache) p += kv_cache_text(*s.kv_cache, shapes.kv);
  if (s.keep_loss_history) p += "losses = []\n";
  const std::string with = amp ? fmt::format("with torch.autocast(\"cuda\", dtype={}):\n", half_name(s.precision)) : std::string();
  const std::string report = "torch.cuda.synchronize()\nfor key in (\"requested\", \"allocated\", \"reserved\"):\n"
                             "    print(f\"{key:10} peak {torch.cuda.memory_stats()[key + '_bytes.all.peak']:>16,} bytes\")\n";
  const std::string empty = s.empty_cache ? "torch.cuda.empty_cache()\n" : "";
  if (!training) {
    // An evaluation that keeps its losses has forgotten no_grad: that is the mistake whose bytes are asked for.
    std::string in = s.keep_loss_history ? "    " : "        ";
    p += s.keep_loss_history ? "" : "with torch.no_grad():\n    ";
    p += fmt::format("for step in range({}):\n", s.steps) + in + "for i in range(len(x)):\n" + in + "    x[i] = host_x[i].to(\"cuda\")\n";
    if (s.keep_loss_history) p += in + (shapes.has_target ? "y = host_y.to(\"cuda\")\n" : "y = None\n");
    if (amp) p += in + with, in += "    ";
    p += in + "output = model(*x)\n";
    if (s.keep_loss_history) p += in + "loss = loss_fn(output, y)\n" + in + "losses.append(loss)\n";
    if (s.empty_cache) p += (s.keep_loss_history ? "    " : "        ") + empty;
    return p + report;
  }
  p += "parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]\n";
  if (optimizer) p += optimizer_classes(s) + fmt::format("optimizer = {}\n", s.offload.optimizer ? "HostOptimizer()" : optimizer_text(optimizer_of_rank(s)));
  if (scaler) p += "scaler = torch.amp.GradScaler(\"cuda\")\n";
  const std::string zero = optimizer ? "optimizer" : "model";
  p += fmt::format("for step in range({}):\n", s.steps);
  const bool many = s.accumulate > 1;
  std::string in = "    ";
  if (many) {
    p += fmt::format("    for micro_batch in range({}):\n", s.accumulate);
    in += "    ";
  }
  p += in + "for i in range(len(x)):\n" + in + "    x[i] = host_x[i].to(\"cuda\")\n";
  p += in + (shapes.has_target ? "y = host_y.to(\"cuda\")\n" : "y = None\n");
  if (s.zero_grad == ZeroGrad::begin_set_none) {
    if (many) p += in + "if micro_batch == 0:\n" + in + "    " + zero + ".zero_grad(set_to_none=True)\n";
    else p += in + zero + ".zero_grad(set_to_none=True)\n";
  }
  if (s.zero_grad == ZeroGrad::begin_keep) p += in + zero + ".zero_grad(set_to_none=False)\n";
  if (many && is_parallel(s.parallel) && s.parallel.sharding == Sharding::none && s.parallel.data > 1) {
    p += in + fmt::format("with model.no_sync() if micro_batch < {} else contextlib.nullcontext():\n", s.accumulate - 1);
    in += "    ";
  }
  std::string body = in;
  if (s.offload.activations) {
    p += body + "with torch.autograd.graph.save_on_cpu(pin_memory=True):\n";
    body += "    ";
  }
  if (amp) {
    p += body + with;
    body += "    ";
  }
  p += body + "output = model(*x)\n" + body + "loss = loss_fn(output, y)\n";
  if (many) p += body + fmt::format("loss = loss / {}\n", s.accumulate);
  if (s.keep_loss_history) p += body + "losses.append(loss)\n";
  p += in + (scaler ? "scaler.scale(loss).backward()\n" : "loss.backward()\n");
  if (s.clip_grad_norm) {
    if (scaler && optimizer) p += "    scaler.unscale_(optimizer)\n";
    p += "    torch.nn.utils.clip_grad_norm_(parameters, 1.0)\n";
  }
  if (optimizer) p += scaler ? "    scaler.step(optimizer)\n    scaler.update()\n" : "    optimizer.step()\n";
  if (s.zero_grad == ZeroGrad::end_set_none) p += "    " + zero + ".zero_grad(set_to_none=True)\n";
  if (s.empty_cache) p += "    " + empty;
  return p + report;
}

}  // namespace memplan::cli
