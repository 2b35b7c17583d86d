// The reference program of a setup, as a script that anyone can run where PyTorch has a GPU. Its order of lines is
// the order of estimators/step/steps.cpp and of tests/accuracy/reference_program.py.
#include <fmt/format.h>

#include <algorithm>

#include "cli/answer.h"
#include "cli/commands/commands.h"
#include "cli/report/report.h"
#include "estimators/estimate/assumptions.h"

namespace memplan::cli {

namespace {

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::int64_t s : sizes) text += fmt::format("{}{}", text.empty() ? "" : ", ", s);
  return "(" + text + (sizes.size() == 1 ? ",)" : ")");
}

const char* half_of(Precision p) { return p == Precision::amp_bf16 || p == Precision::bf16 ? "torch.bfloat16" : "torch.float16"; }

std::string optimizer_text(const OptimizerSetup& o) {
  std::string arguments = "parameters";
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
    case OptimizerKind::none: break;
  }
  return "None";
}

struct Shapes {
  std::vector<Input> inputs;
  std::vector<std::int64_t> target;
  std::string target_dtype;
  bool has_target = false;
  std::vector<std::string> checkpointed;  ///< module paths
};

Shapes shapes_of(const Options& options) {
  const Tape tape = take(lower(take(load_model(options.argument)), options.setup));
  Shapes s;
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    s.inputs.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  if (options.setup.mode == Mode::inference) return s;
  for (const CheckpointRegion& region : tape.checkpoints) {
    const std::string& path = tape.scopes[static_cast<std::size_t>(region.scope)].path;
    if (std::find(s.checkpointed.begin(), s.checkpointed.end(), path) == s.checkpointed.end()) s.checkpointed.push_back(path);
  }
  TrainingSetup one = options.setup;
  one.steps = 1;
  const Schedule schedule = take(run_steps(tape, one, device_of(options).device));
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
  if (training) p += "def loss_fn(output, y):\n    output = first_floating(output)\n" + loss_text(s, shapes) + "\n\n";
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
  if (!shapes.checkpointed.empty()) {
    p += "import functools\n\nfrom torch.utils.checkpoint import checkpoint\n\nfor name in [\n";
    for (const std::string& path : shapes.checkpointed) p += fmt::format("    \"{}\",\n", clean(path));
    p += "]:\n    module = model.get_submodule(name)\n"
         "    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)\n";
  }
  if (pure) p += fmt::format("model.to({})\n", half_of(s.precision));
  p += "host_x = [\n";
  for (const Input& i : shapes.inputs) {
    const auto dtype = dtype_from_name(i.dtype);
    const bool converted = pure && dtype && is_floating(*dtype);
    p += fmt::format("    torch.zeros({}, dtype={}),  # {}\n", sizes_text(i.sizes), converted ? half_of(s.precision) : "torch." + i.dtype, clean(i.name));
  }
  p += "]\n";
  if (training) p += shapes.has_target ? fmt::format("host_y = torch.zeros({}, dtype=torch.{})\n", sizes_text(shapes.target), shapes.target_dtype) : "";
  p += "\nmodel.to(\"cuda\")\nx = [None] * len(host_x)\n";
  const std::string with = amp ? fmt::format("with torch.autocast(\"cuda\", dtype={}):\n", half_of(s.precision)) : std::string();
  const std::string report = "torch.cuda.synchronize()\nfor key in (\"requested\", \"allocated\", \"reserved\"):\n"
                             "    print(f\"{key:10} peak {torch.cuda.memory_stats()[key + '_bytes.all.peak']:>16,} bytes\")\n";
  if (!training) {
    p += fmt::format("with torch.no_grad():\n    for step in range({}):\n        for i in range(len(x)):\n            x[i] = host_x[i].to(\"cuda\")\n", s.steps);
    p += amp ? "        " + with + "            output = model(*x)\n" : "        output = model(*x)\n";
    return p + report;
  }
  p += "parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]\n";
  if (optimizer) p += fmt::format("optimizer = {}\n", optimizer_text(s.optimizer));
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
  std::string body = in;
  if (amp) {
    p += in + with;
    body += "    ";
  }
  p += body + "output = model(*x)\n" + body + "loss = loss_fn(output, y)\n";
  if (many) p += body + fmt::format("loss = loss / {}\n", s.accumulate);
  p += in + (scaler ? "scaler.scale(loss).backward()\n" : "loss.backward()\n");
  if (s.clip_grad_norm) {
    if (scaler && optimizer) p += "    scaler.unscale_(optimizer)\n";
    p += "    torch.nn.utils.clip_grad_norm_(parameters, 1.0)\n";
  }
  if (optimizer) p += scaler ? "    scaler.step(optimizer)\n    scaler.update()\n" : "    optimizer.step()\n";
  if (s.zero_grad == ZeroGrad::end_set_none) p += "    " + zero + ".zero_grad(set_to_none=True)\n";
  return p + report;
}

}  // namespace memplan::cli
