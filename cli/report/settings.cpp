#include "cli/report/settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/style.h"

namespace memplan::cli {

namespace {

bool is_amp(Precision p) { return p == Precision::amp_bf16 || p == Precision::amp_fp16; }
bool is_pure(Precision p) { return p == Precision::bf16 || p == Precision::fp16; }
bool is_bf16(Precision p) { return p == Precision::amp_bf16 || p == Precision::bf16; }
const char* dtype_name(Precision p) { return is_bf16(p) ? "torch.bfloat16" : "torch.float16"; }

std::string shell_lines(const TrainingSetup& s) {
  return s.allocator.expandable_segments ? "export PYTORCH_ALLOC_CONF=expandable_segments:True   # before the process starts\n" : "";
}

std::string optimizer_call(const OptimizerSetup& o) {
  std::string extra;
  if (o.momentum > 0) extra += fmt::format(", momentum={:g}", o.momentum);
  if (o.amsgrad) extra += ", amsgrad=True";
  if (o.impl == OptimizerImpl::fused) extra += ", fused=True";
  if (o.impl == OptimizerImpl::loop) extra += ", foreach=False";
  switch (o.kind) {
    case OptimizerKind::none: return "None";
    case OptimizerKind::sgd: return "torch.optim.SGD(model.parameters(), lr=lr" + extra + ")";
    case OptimizerKind::adam: return "torch.optim.Adam(model.parameters(), lr=lr" + extra + ")";
    case OptimizerKind::adamw: return "torch.optim.AdamW(model.parameters(), lr=lr" + extra + ")";
    case OptimizerKind::adagrad: return "torch.optim.Adagrad(model.parameters(), lr=lr" + extra + ")";
    case OptimizerKind::rmsprop: return "torch.optim.RMSprop(model.parameters(), lr=lr" + extra + ")";
    case OptimizerKind::adafactor: return "torch.optim.Adafactor(model.parameters(), lr=lr)";
    case OptimizerKind::lion: return "lion_pytorch.Lion(model.parameters(), lr=lr)";
    case OptimizerKind::adamw8bit: return "bitsandbytes.optim.AdamW8bit(model.parameters(), lr=lr)";
    default: return "optimizer";
  }
}

std::string checkpoint_lines(const TrainingSetup& s) {
  if (s.checkpoint.empty()) return {};
  std::string globs;
  for (const std::string& g : s.checkpoint) globs += (globs.empty() ? "" : ", ") + clean(g);
  return fmt::format("from torch.utils.checkpoint import checkpoint\n"
                     "for block in blocks:   # the modules that `{}` names; memplan explain MODEL --program lists them\n"
                     "    block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)\n", globs);
}

std::string pytorch(const TrainingSetup& s) {
  std::string out = shell_lines(s);
  if (is_pure(s.precision)) out += fmt::format("model.to({})\n", dtype_name(s.precision));
  if (s.mode == Mode::inference) {
    out += is_amp(s.precision) ? fmt::format("with torch.no_grad(), torch.autocast(\"cuda\", dtype={}):\n", dtype_name(s.precision)) : "with torch.no_grad():\n";
    return out + "    output = model(batch)\n";
  }
  out += checkpoint_lines(s);
  out += "optimizer = " + optimizer_call(s.optimizer) + "\n";
  const bool scaler = s.precision == Precision::amp_fp16;
  if (scaler) out += "scaler = torch.amp.GradScaler(\"cuda\")\n";
  const std::string in = s.accumulate > 1 ? "    " : "";
  if (s.accumulate > 1) out += fmt::format("for micro_batch in batch.split({}):   # {} of them per optimizer step\n", s.batch.value_or(1), s.accumulate);
  out += in + (is_amp(s.precision) ? fmt::format("with torch.autocast(\"cuda\", dtype={}):\n", dtype_name(s.precision)) + in + "    " : std::string());
  out += fmt::format("loss = loss_fn(model({})){}\n", s.accumulate > 1 ? "micro_batch" : "batch", s.accumulate > 1 ? fmt::format(" / {}", s.accumulate) : "");
  out += in + (scaler ? "scaler.scale(loss).backward()\n" : "loss.backward()\n");
  out += scaler ? "scaler.step(optimizer); scaler.update()\n" : "optimizer.step()\n";
  return out + "optimizer.zero_grad(set_to_none=True)\n";
}

/// Names of TrainingArguments(optim=…) (transformers/training_args.py, OptimizerNames).
std::string hf_optimizer(const OptimizerSetup& o) {
  switch (o.kind) {
    case OptimizerKind::adamw: return o.impl == OptimizerImpl::fused ? "adamw_torch_fused" : "adamw_torch";
    case OptimizerKind::adamw8bit: return "adamw_bnb_8bit";
    case OptimizerKind::adafactor: return "adafactor";
    case OptimizerKind::sgd: return "sgd";
    case OptimizerKind::adagrad: return "adagrad";
    case OptimizerKind::rmsprop: return "rmsprop";
    case OptimizerKind::lion: return "lion_32bit";
    default: return {};
  }
}

std::string hf(const TrainingSetup& s) {
  std::string out = shell_lines(s);
  if (is_pure(s.precision)) out += fmt::format("model = AutoModelForCausalLM.from_pretrained(name, dtype={})\n", dtype_name(s.precision));
  out += "TrainingArguments(\n";
  out += fmt::format("    per_device_train_batch_size={},\n    gradient_accumulation_steps={},\n", s.batch.value_or(1), s.accumulate);
  if (s.precision == Precision::amp_bf16) out += "    bf16=True,\n";
  if (s.precision == Precision::amp_fp16) out += "    fp16=True,\n";
  if (!s.checkpoint.empty()) out += "    gradient_checkpointing=True,\n    gradient_checkpointing_kwargs={\"use_reentrant\": False},\n";
  const std::string name = hf_optimizer(s.optimizer);
  if (!name.empty()) out += fmt::format("    optim=\"{}\",\n", name);
  else out += "    # pass the optimizer itself: Trainer(optimizers=(optimizer, None))\n";
  if (!s.clip_grad_norm) out += "    max_grad_norm=0,   # no clipping, as estimated\n";
  return out + ")\n";
}

std::string accelerate(const TrainingSetup& s) {
  std::string out = shell_lines(s) + checkpoint_lines(s);
  if (is_pure(s.precision)) out += fmt::format("model.to({})\n", dtype_name(s.precision));
  const char* mixed = s.precision == Precision::amp_bf16 ? "bf16" : s.precision == Precision::amp_fp16 ? "fp16" : "no";
  out += fmt::format("accelerator = Accelerator(mixed_precision=\"{}\", gradient_accumulation_steps={})\n", mixed, s.accumulate);
  out += "optimizer = " + optimizer_call(s.optimizer) + "\n";
  out += fmt::format("loader = DataLoader(dataset, batch_size={})\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n", s.batch.value_or(1));
  return out + "for batch in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(loss_fn(model(batch)))\n        optimizer.step()\n        optimizer.zero_grad()\n";
}

std::string deepspeed(const TrainingSetup& s) {
  nlohmann::ordered_json j;
  j["train_micro_batch_size_per_gpu"] = s.batch.value_or(1);
  j["gradient_accumulation_steps"] = s.accumulate;
  if (s.clip_grad_norm) j["gradient_clipping"] = 1.0;
  if (is_amp(s.precision) || is_pure(s.precision)) j[is_bf16(s.precision) ? "bf16" : "fp16"] = {{"enabled", true}};
  j["zero_optimization"] = {{"stage", 0}};
  std::string out = shell_lines(s);
  if (is_amp(s.precision)) out += "# DeepSpeed's bf16/fp16 keeps 16-bit weights beside fp32 masters, which is not autocast: re-check with --precision\n";
  if (!s.checkpoint.empty()) out += "# checkpointing is set in the model: model.gradient_checkpointing_enable()\n";
  return out + j.dump(2) + "\n";
}

std::string torchtitan(const TrainingSetup& s) {
  std::string out = shell_lines(s);
  out += "[training]\n";
  out += fmt::format("local_batch_size = {}\n", s.batch.value_or(1));
  if (s.sequence) out += fmt::format("seq_len = {}\n", *s.sequence);
  out += fmt::format("global_batch_size = {}\n", s.batch.value_or(1) * s.accumulate);
  if (is_pure(s.precision)) out += fmt::format("dtype = \"{}\"\n", is_bf16(s.precision) ? "bfloat16" : "float16");
  out += fmt::format("mixed_precision_param = \"{}\"\n", is_amp(s.precision) ? (is_bf16(s.precision) ? "bfloat16" : "float16") : "float32");
  out += fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", s.checkpoint.empty() ? "none" : "full");
  out += fmt::format("\n[optimizer]\nname = \"{}\"\nimplementation = \"{}\"\n", s.optimizer.kind == OptimizerKind::adam ? "Adam" : "AdamW",
                     s.optimizer.impl == OptimizerImpl::fused ? "fused" : s.optimizer.impl == OptimizerImpl::loop ? "for-loop" : "foreach");
  if (s.optimizer.kind != OptimizerKind::adam && s.optimizer.kind != OptimizerKind::adamw) out += "# torchtitan has Adam and AdamW only\n";
  return out;
}

std::string lightning(const TrainingSetup& s) {
  std::string out = shell_lines(s) + checkpoint_lines(s);
  const char* precision = s.precision == Precision::amp_bf16   ? "bf16-mixed"
                          : s.precision == Precision::amp_fp16 ? "16-mixed"
                          : s.precision == Precision::bf16     ? "bf16-true"
                          : s.precision == Precision::fp16     ? "16-true"
                                                               : "32-true";
  out += fmt::format("trainer = lightning.Trainer(\n    precision=\"{}\",\n    accumulate_grad_batches={},\n", precision, s.accumulate);
  if (s.clip_grad_norm) out += "    gradient_clip_val=1.0,\n";
  out += fmt::format(")\n# DataLoader(batch_size={}); configure_optimizers returns {}\n", s.batch.value_or(1), optimizer_call(s.optimizer));
  return out;
}

}  // namespace

std::string framework_settings(const TrainingSetup& setup, const std::string& framework) {
  if (framework == "hf") return hf(setup);
  if (framework == "accelerate") return accelerate(setup);
  if (framework == "deepspeed") return deepspeed(setup);
  if (framework == "torchtitan") return torchtitan(setup);
  if (framework == "lightning") return lightning(setup);
  return pytorch(setup);
}

}  // namespace memplan::cli
