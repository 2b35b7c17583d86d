// The reference program of a setup, as a script that anyone can run where PyTorch has a GPU. Its order of lines is
// the order of estimators/runtime/torch/step/steps.cpp and of tests/accuracy/reference_program.py.
#include <fmt/format.h>

#include <algorithm>

#include "cli/answer.h"
#include "cli/commands/commands.h"
#include "cli/program/pieces.h"
#include "cli/program/placement.h"
#include "cli/report/report.h"
#include "estimators/estimate/checkpoint_plan.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/kv_cache.h"
#include "estimators/runtime/torch/step/probe.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/setup/names.h"

namespace memplan::cli {

namespace {

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::int64_t s : sizes) text += fmt::format("{}{}", text.empty() ? "" : ", ", s);
  return "(" + text + (sizes.size() == 1 ? ",)" : ")");
}

struct Shapes {
  std::vector<Input> inputs;
  std::vector<std::int64_t> target;
  std::string target_dtype;
  bool has_target = false;
  std::vector<KvLayer> kv;
  ModelParts parts;
};

Shapes shapes_of(const Options& options) {
  const Device device = device_of(options).device;
  const Model model = take(load_model(options.argument, options.inputs));
  const Tape tape = take(with_planned_checkpoints(take(lower(model, options.setup)), options.setup, device));
  Shapes s;
  s.parts = parts_of(model, tape, options.setup);
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    s.inputs.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  if (options.setup.kv_cache)
    probe_forward(tape, options.setup, device,
                  [&](const Run&, const Environment& env) { s.kv = kv_layers(tape, env); });
  if (options.setup.mode == Mode::inference && !options.setup.keep_loss_history) return s;
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

/// Static keys and values: one tensor each per layer.
std::string kv_cache_text(const KvCacheSetup& setup, const std::vector<KvLayer>& layers) {
  const std::int64_t tokens = setup.sequences * ((setup.length + setup.block - 1) / setup.block * setup.block);
  std::string p = "cache = [torch.empty(size, dtype=dtype, device=\"cuda\") for size, dtype in [\n";
  for (const KvLayer& l : layers)
    for (const std::int64_t dim : {l.key_dim, l.value_dim})
      p += fmt::format("    (({}, {}, {}), torch.{}),\n", tokens, l.heads, dim, name_of(setup.dtype.value_or(l.dtype)));
  return p + "]]\n";
}

}  // namespace

std::string reference_program(const Options& options) {
  const TrainingSetup& s = options.setup;
  if (s.fp8 != Fp8::none)
    fail(ErrorKind::usage, "there is no short program for layers of Transformer Engine", "--program",
         "docs/strategies.md describes what is estimated");
  const Shapes shapes = shapes_of(options);
  const bool training = s.mode == Mode::training;
  const bool amp = s.precision == Precision::amp_bf16 || s.precision == Precision::amp_fp16;
  const bool pure = s.precision == Precision::bf16 || s.precision == Precision::fp16;
  const bool scaler = training && s.precision == Precision::amp_fp16;
  const bool optimizer = training && s.optimizer.kind != OptimizerKind::none;

  std::string p = fmt::format(
      "# The program whose memory `memplan` estimates for this setup ({}, {}).\n"
      "# Run it where {} has a GPU, with the function that builds the model:\n"
      "#     python program.py torchvision.models:resnet50\n",
      name_of(s.mode), name_of(s.precision), profile_of(s).name());
  if (!options.alloc_conf.empty())
    p += fmt::format("import os\n\nos.environ[\"PYTORCH_ALLOC_CONF\"] = \"{}\"\n", clean(options.alloc_conf));
  p += "import importlib\nimport sys\n\nimport torch\n\n\n"
       "def build():\n    module, function = sys.argv[1].split(\":\")\n    return "
       "getattr(importlib.import_module(module), function)()\n\n\n"
       "def first_floating(output):\n"
       "    \"\"\"The loss is taken of the first floating tensor that the model returns.\"\"\"\n"
       "    if torch.is_tensor(output):\n        return output if output.is_floating_point() else None\n"
       "    for item in output.values() if hasattr(output, \"values\") else output:\n"
       "        found = first_floating(item) if item is not None else None\n        if found is not None:\n            "
       "return found\n\n\n";
  if (training || s.keep_loss_history)
    p += "def loss_fn(output, y):\n    output = first_floating(output)\n" + loss_text(s, shapes) + "\n\n";
  p += fmt::format("model = build()\nmodel.train({})\n", training ? "True" : "False");
  p += attention_text(s.attention) + frozen_text(s.frozen);
  if (pure) p += fmt::format("model.to({})\n", half_name(s.precision));
  if (s.channels_last) p += "model.to(memory_format=torch.channels_last)\n";
  if (s.lora && training) p += adapters_text(*s.lora, shapes.parts.adapted);
  if (!shapes.parts.checkpointed.empty() && (training || s.keep_loss_history))
    p += checkpoint_text(s, shapes.parts, s.lora.has_value());
  p += "host_x = [\n";
  for (const Input& i : shapes.inputs) {
    const auto dtype = dtype_from_name(i.dtype);
    const bool converted = pure && dtype && is_floating(*dtype);
    p += fmt::format("    torch.zeros({}, dtype={}),  # {}\n", sizes_text(i.sizes),
                     converted ? half_name(s.precision) : "torch." + i.dtype, clean(i.name));
  }
  p += "]\n";
  if (training || s.keep_loss_history)
    p += shapes.has_target
             ? fmt::format("host_y = torch.zeros({}, dtype=torch.{})\n", sizes_text(shapes.target), shapes.target_dtype)
             : "";
  if (s.channels_last)
    p += "host_x = [t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in host_x]\n";
  p += s.offload.parameters ? "\nfrom accelerate import cpu_offload\n\ncpu_offload(model, torch.device(\"cuda\", "
                              "0))\nx = [None] * len(host_x)\n"
                            : "\n" + place_on_devices(s.parallel, shapes.parts) + "x = [None] * len(host_x)\n";
  if (s.kv_cache) p += kv_cache_text(*s.kv_cache, shapes.kv);
  if (s.keep_loss_history) p += "losses = []\n";
  const std::string with =
      amp ? fmt::format("with torch.autocast(\"cuda\", dtype={}):\n", half_name(s.precision)) : std::string();
  const std::string report =
      "torch.cuda.synchronize()\nfor key in (\"requested\", \"allocated\", \"reserved\"):\n"
      "    print(f\"{key:10} peak {torch.cuda.memory_stats()[key + '_bytes.all.peak']:>16,} bytes\")\n";
  const std::string empty = s.empty_cache ? "torch.cuda.empty_cache()\n" : "";
  if (!training) {
    // An evaluation that keeps its losses has forgotten no_grad: that is the mistake whose bytes are asked for.
    std::string in = s.keep_loss_history ? "    " : "        ";
    p += s.keep_loss_history ? "" : "with torch.no_grad():\n    ";
    p += fmt::format("for step in range({}):\n", s.steps) + in + "for i in range(len(x)):\n" + in +
         "    x[i] = host_x[i].to(\"cuda\")\n";
    if (s.keep_loss_history) p += in + (shapes.has_target ? "y = host_y.to(\"cuda\")\n" : "y = None\n");
    if (amp) p += in + with, in += "    ";
    p += in + "output = model(*x)\n";
    if (s.keep_loss_history) p += in + "loss = loss_fn(output, y)\n" + in + "losses.append(loss)\n";
    if (s.empty_cache) p += (s.keep_loss_history ? "    " : "        ") + empty;
    return p + report;
  }
  p += "parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]\n";
  if (optimizer)
    p +=
        optimizer_classes(s) +
        fmt::format("optimizer = {}\n", s.offload.optimizer ? "HostOptimizer()" : optimizer_text(optimizer_of_rank(s)));
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
    if (many)
      p += in + "if micro_batch == 0:\n" + in + "    " + zero + ".zero_grad(set_to_none=True)\n";
    else
      p += in + zero + ".zero_grad(set_to_none=True)\n";
  }
  if (s.zero_grad == ZeroGrad::begin_keep) p += in + zero + ".zero_grad(set_to_none=False)\n";
  if (many && is_parallel(s.parallel) && s.parallel.sharding == Sharding::none && s.parallel.data > 1) {
    p +=
        in + fmt::format("with model.no_sync() if micro_batch < {} else contextlib.nullcontext():\n", s.accumulate - 1);
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
