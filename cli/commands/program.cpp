// The reference program of a setup, as a script that anyone can run where PyTorch has a GPU. Its order of lines is
// the order of estimators/runtime/torch/step/steps.cpp and of tests/accuracy/reference_program.py.
#include <fmt/format.h>

#include <algorithm>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/program/pieces.h"
#include "cli/program/placement.h"
#include "cli/program/settings.h"
#include "cli/report/report.h"
#include "estimators/runtime/torch/profile/environment.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/inspect_forward.h"
#include "estimators/runtime/torch/step/kv_cache.h"
#include "estimators/runtime/torch/step/loss.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/setup/names.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/setup/strategies.h"
#include "planner/checkpointing/plan.h"

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
  bool may_return_loss = false;  ///< beside a first tensor that is none
  Loss loss = Loss::automatic;
  std::vector<KvLayer> kv;
  ModelParts parts;
};

Shapes shapes_of(const Job& job) {
  const Options& options = job.options;
  const Model& model = job.model;
  const Device device = device_of(options).device;
  const Tape tape = unwrap(with_planned_checkpoints(model, options.setup, device)).tape;
  Shapes s;
  s.parts = parts_of(model, tape, options.setup);
  s.loss = loss_of(tape, options.setup);
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    s.inputs.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  if (options.setup.kv_cache)
    inspect_forward(tape, options.setup, device,
                    [&](const Run&, const Environment& env) { s.kv = kv_layers(tape, env); });
  if (options.setup.mode == Mode::inference && !options.setup.keep_loss_history) return s;
  TrainingSetup one = options.setup;
  one.steps = 1;
  const Schedule schedule = unwrap(run_steps(tape, one, device));
  for (const Allocation& a : schedule.allocations) {
    if (a.label < 0 || a.shape_at < 0 || schedule.names[static_cast<std::size_t>(a.label)] != "target") continue;
    const TensorShape& shape = schedule.shapes[static_cast<std::size_t>(a.shape_at)];
    s.target = shape.sizes;
    s.target_dtype = name_of(static_cast<DType>(shape.dtype));
    s.has_target = true;
    break;
  }
  s.may_return_loss = !s.has_target && s.loss == Loss::automatic && tape.outputs.size() > 1;
  return s;
}

constexpr std::string_view first_floating_text =
    "def first_floating(output):\n"
    "    \"\"\"The loss is taken of the first floating tensor that the model returns.\"\"\"\n"
    "    if torch.is_tensor(output):\n        return output if output.is_floating_point() else None\n"
    "    for item in output.values() if hasattr(output, \"values\") else output:\n"
    "        found = first_floating(item) if item is not None else None\n        if found is not None:\n            "
    "return found\n\n\n";

constexpr std::string_view own_loss_text =
    "def trained_by(t):\n    leaves, nodes = set(), [t.grad_fn]\n    seen = set()\n    while nodes:\n"
    "        node = nodes.pop()\n        if node is None or node in seen:\n            continue\n"
    "        seen.add(node)\n        nodes += [n for n, _ in node.next_functions]\n"
    "        if hasattr(node, \"variable\"):\n            leaves.add(node.variable)\n    return leaves\n\n\n"
    "def own_loss(output):\n"
    "    \"\"\"The scalar behind the first floating tensor that trains all that this one trains, or this one.\"\"\"\n"
    "    leaves = torch.utils._pytree.tree_leaves(output)\n"
    "    first, *others = [t for t in leaves if torch.is_tensor(t) and t.is_floating_point()]\n"
    "    for t in others:\n"
    "        if first.dim() and t.dim() == 0 and t.requires_grad and trained_by(first) <= trained_by(t):\n"
    "            return t\n    return first\n\n\n";

/// The loss as the estimate takes it: cross entropy over the last (or the second, for images) dimension.
std::string loss_text(const TrainingSetup& setup, const Shapes& shapes) {
  if (setup.loss == Loss::mse) return "    return torch.nn.functional.mse_loss(output, y)\n";
  if (!shapes.has_target) return "    return output if output.dim() == 0 else output.sum()\n";
  if (shapes.loss == Loss::causal_lm)
    return "    logits = output.float()\n    labels = torch.nn.functional.pad(y, (0, 1), value=-100)\n"
           "    labels = labels[..., 1:].contiguous()\n    logits, labels = logits.flatten(0, -2), labels.flatten()\n"
           "    total = torch.nn.functional.cross_entropy(logits, labels, reduction=\"sum\")\n"
           "    return total / tokens\n";
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

bool is_training(const TrainingSetup& s) { return s.mode == Mode::training; }
bool is_pure(const TrainingSetup& s) { return s.precision == Precision::bf16 || s.precision == Precision::fp16; }
bool has_scaler(const TrainingSetup& s) { return is_training(s) && s.precision == Precision::amp_fp16; }
bool has_optimizer(const TrainingSetup& s) { return is_training(s) && s.optimizer.kind != OptimizerKind::none; }
bool takes_loss(const TrainingSetup& s) { return is_training(s) || s.keep_loss_history; }

std::string autocast_text(const TrainingSetup& s) {
  return fmt::format("with torch.autocast(\"cuda\", dtype={}):\n", half_name(s.precision));
}

/// What stands before the model: settings of the allocator, imports, the functions for model and loss.
std::string preamble(const Options& options, const Shapes& shapes) {
  const TrainingSetup& s = options.setup;
  std::string p = fmt::format(
      "# The program whose memory `memplan` estimates for this setup ({}, {}).\n"
      "# Run it where {} has a GPU, with the function that builds the model:\n"
      "#     python program.py torchvision.models:resnet50\n",
      name_of(s.mode), name_of(s.precision), profile_of(s).name());
  std::string variables;
  const auto set = [&](std::string_view name, const std::string& value) {
    variables += fmt::format("os.environ[\"{}\"] = {}\n", name, python_string(value));
  };
  if (!options.alloc_conf.empty()) set(profile_of(s).allocator_variable, options.alloc_conf);
  for (const auto& [name, value] : s.runtime.environment)
    if (!sets_allocator(name)) set(name, value);
  if (!variables.empty()) p += "import os\n\n" + variables;
  p += "import importlib\nimport sys\n\nimport torch\n\n\n"
       "def build():\n    module, function = sys.argv[1].split(\":\")\n    return "
       "getattr(importlib.import_module(module), function)()\n\n\n";
  const bool own = takes_loss(s) && shapes.may_return_loss;
  p += own ? own_loss_text : first_floating_text;
  if (takes_loss(s))
    p += fmt::format("def loss_fn(output, y):\n    output = {}(output)\n{}\n\n", own ? "own_loss" : "first_floating",
                     loss_text(s, shapes));
  return p;
}

std::string model_text(const TrainingSetup& s, const Shapes& shapes) {
  std::string p = fmt::format("model = build()\nmodel.train({})\n", is_training(s) ? "True" : "False");
  p += attention_text(s.attention) + frozen_text(s.frozen);
  if (is_pure(s)) p += fmt::format("model.to({})\n", half_name(s.precision));
  if (s.channels_last) p += "model.to(memory_format=torch.channels_last)\n";
  if (s.lora && is_training(s)) p += adapters_text(*s.lora, shapes.parts.adapted);
  if (!shapes.parts.checkpointed.empty() && takes_loss(s)) p += checkpoint_text(s, shapes.parts, s.lora.has_value());
  return p;
}

/// Batch and target on the host, and the model on its device.
std::string inputs_text(const TrainingSetup& s, const Shapes& shapes) {
  std::string p = "host_x = [\n";
  for (const Input& i : shapes.inputs) {
    const auto dtype = dtype_from_name(i.dtype);
    const bool converted = is_pure(s) && dtype && is_floating(*dtype);
    p += fmt::format("    torch.zeros({}, dtype={}),  # {}\n", sizes_text(i.sizes),
                     converted ? half_name(s.precision) : "torch." + i.dtype, clean(i.name));
  }
  p += "]\n";
  if (takes_loss(s))
    p += shapes.has_target
             ? fmt::format("host_y = torch.zeros({}, dtype=torch.{})\n", sizes_text(shapes.target), shapes.target_dtype)
             : "";
  if (takes_loss(s) && shapes.has_target && shapes.loss == Loss::causal_lm)
    p += "tokens = torch.tensor(host_y.numel(), device=\"cuda\")  # num_items_in_batch of transformers.Trainer\n";
  if (s.channels_last)
    p += "host_x = [t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in host_x]\n";
  p += s.offload.parameters ? "\nfrom accelerate import cpu_offload\n\ncpu_offload(model, torch.device(\"cuda\", "
                              "0))\nx = [None] * len(host_x)\n"
                            : "\n" + place_on_devices(s.parallel, shapes.parts) + "x = [None] * len(host_x)\n";
  return p;
}

std::string evaluation_text(const TrainingSetup& s, const Shapes& shapes) {
  // An evaluation that keeps its losses has forgotten no_grad: that is the mistake whose bytes are asked for.
  std::string in = s.keep_loss_history ? "    " : "        ";
  std::string p = s.keep_loss_history ? "" : "with torch.no_grad():\n    ";
  p += fmt::format("for step in range({}):\n", s.steps) + in + "for i in range(len(x)):\n" + in +
       "    x[i] = host_x[i].to(\"cuda\")\n";
  if (s.keep_loss_history) p += in + (shapes.has_target ? "y = host_y.to(\"cuda\")\n" : "y = None\n");
  if (is_amp(s.precision)) p += in + autocast_text(s), in += "    ";
  p += in + "output = model(*x)\n";
  if (s.keep_loss_history) p += in + "loss = loss_fn(output, y)\n" + in + "losses.append(loss)\n";
  if (s.empty_cache) p += (s.keep_loss_history ? "    " : "        ") + std::string("torch.cuda.empty_cache()\n");
  return p;
}

/// Forward pass and loss of one micro-batch, indented as `body` says.
std::string forward_text(const TrainingSetup& s, Loss loss, std::string body) {
  std::string p;
  if (s.offload.activations) {
    p += body + "with torch.autograd.graph.save_on_cpu(pin_memory=True):\n";
    body += "    ";
  }
  if (is_amp(s.precision)) {
    p += body + autocast_text(s);
    body += "    ";
  }
  p += loss == Loss::causal_lm ? body + "loss = loss_fn(model(*x), y)\n"
                               : body + "output = model(*x)\n" + body + "loss = loss_fn(output, y)\n";
  if (s.accumulate > 1) p += body + fmt::format("loss = loss / {}\n", s.accumulate);
  if (s.keep_loss_history) p += body + "losses.append(loss)\n";
  return p;
}

/// The gradients of the last step go at the beginning of the next one, or only become zeros.
std::string zeroed_text(const TrainingSetup& s, const std::string& in, const std::string& zero) {
  const std::string inner = "if micro_batch == 0:\n" + in + "    ";
  if (s.zero_grad == ZeroGrad::begin_set_none)
    return in + (s.accumulate > 1 ? inner : "") + zero + ".zero_grad(set_to_none=True)\n";
  return s.zero_grad == ZeroGrad::begin_keep ? in + zero + ".zero_grad(set_to_none=False)\n" : "";
}

std::string training_text(const TrainingSetup& s, const Shapes& shapes) {
  std::string p = "parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]\n";
  if (has_optimizer(s))
    p +=
        optimizer_classes(s) +
        fmt::format("optimizer = {}\n", s.offload.optimizer ? "HostOptimizer()" : optimizer_text(optimizer_of_rank(s)));
  if (has_scaler(s)) p += "scaler = torch.amp.GradScaler(\"cuda\")\n";
  const std::string zero = has_optimizer(s) ? "optimizer" : "model";
  p += fmt::format("for step in range({}):\n", s.steps);
  const bool many = s.accumulate > 1;
  std::string in = "    ";
  if (many) {
    p += fmt::format("    for micro_batch in range({}):\n", s.accumulate);
    in += "    ";
  }
  p += in + "for i in range(len(x)):\n" + in + "    x[i] = host_x[i].to(\"cuda\")\n";
  p += in + (shapes.has_target ? "y = host_y.to(\"cuda\")\n" : "y = None\n");
  p += zeroed_text(s, in, zero);
  if (many && is_parallel(s.parallel) && strategy_of(s.parallel).buckets && s.parallel.data > 1) {
    p +=
        in + fmt::format("with model.no_sync() if micro_batch < {} else contextlib.nullcontext():\n", s.accumulate - 1);
    in += "    ";
  }
  // Its backward pass belongs to it as well.
  if (s.parallel.loss_parallel) {
    p += in + "with loss_parallel():\n";
    in += "    ";
  }
  p += forward_text(s, shapes.loss, in);
  if (s.zero_grad == ZeroGrad::before_backward)
    p += in + (many ? "if micro_batch == 0:\n" + in + "    " : "") + zero + ".zero_grad(set_to_none=True)\n";
  p += in + (has_scaler(s) ? "scaler.scale(loss).backward()\n" : "loss.backward()\n");
  if (s.clip_grad_norm) {
    if (has_scaler(s) && has_optimizer(s)) p += "    scaler.unscale_(optimizer)\n";
    p += "    torch.nn.utils.clip_grad_norm_(parameters, 1.0)\n";
  }
  if (has_optimizer(s))
    p += has_scaler(s) ? "    scaler.step(optimizer)\n    scaler.update()\n" : "    optimizer.step()\n";
  if (s.zero_grad == ZeroGrad::end_set_none) p += "    " + zero + ".zero_grad(set_to_none=True)\n";
  if (s.empty_cache) p += "    torch.cuda.empty_cache()\n";
  return p;
}

}  // namespace

std::string reference_program(const Options& given) {
  if (given.setup.fp8 != Fp8::none)
    fail(ErrorKind::usage, "there is no short program for layers of Transformer Engine", "--program",
         "docs/strategies.md describes what is estimated");
  const Job job = load_job(given);
  const Options& options = job.options;
  const TrainingSetup& s = options.setup;
  const Shapes shapes = shapes_of(job);
  std::string p = preamble(options, shapes) + model_text(s, shapes) + inputs_text(s, shapes);
  if (s.kv_cache) p += kv_cache_text(*s.kv_cache, shapes.kv);
  if (s.compile) p += compile_lines(s);
  if (s.keep_loss_history) p += "losses = []\n";
  p += is_training(s) ? training_text(s, shapes) : evaluation_text(s, shapes);
  return p +
         "torch.cuda.synchronize()\nfor key in (\"requested\", \"allocated\", \"reserved\"):\n"
         "    print(f\"{key:10} peak {torch.cuda.memory_stats()[key + '_bytes.all.peak']:>16,} bytes\")\n";
}

}  // namespace memplan::cli
