#include "planner/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "estimators/base/threads.h"
#include "estimators/graph/dims.h"
#include "estimators/setup/field.h"
#include "estimators/setup/optimizers.h"
#include "planner/batch.h"
#include "planner/checkpointing/plan.h"
#include "planner/fewest.h"

namespace memplan {

namespace {

struct Trick {
  const char* id;
  std::string title;
  std::string flags;
  std::string snippet;
  std::string note;
  std::function<void(TrainingSetup&)> apply;  ///< empty: nothing to estimate
  bool same_ops = false;                      ///< or parts of them: no more is open of it than of the setup itself
};

bool batch_is_open(const Model& model) {
  const auto dims = open_dims(model.graphs.front());
  return std::any_of(dims.begin(), dims.end(), [](const auto& d) { return d.batch; });
}

Bytes bytes_of(const Estimate& e, Part part) {
  for (const CategoryPart& p : e.parts)
    if (p.part == part) return p.bytes;
  return {};
}

void add_batch_tricks(const Model& model, const TrainingSetup& s, std::vector<Trick>& tricks) {
  const std::int64_t batch = batch_of(model, s);
  if (!batch_is_open(model) || batch < 2) return;
  const std::int64_t half = batch / 2;
  tricks.push_back({"smaller-batch", "a smaller batch", setting(Field::batch, half),
                    fmt::format("DataLoader(dataset, batch_size={})", half),
                    "fewer samples per optimizer step: the training itself changes",
                    [&model, half](TrainingSetup& t) { t = with_batch(model, t, half); }, true});
  if (s.mode == Mode::training && batch % 2 == 0)
    tricks.push_back({"accumulation", "smaller micro-batches, accumulated",
                      fmt::format("{} {}", setting(Field::batch, half), setting(Field::accumulate, s.accumulate * 2)),
                      "for micro_batch in batch.chunk(2): (loss_fn(model(micro_batch)) / 2).backward()",
                      "the same gradients, in two passes; batch norm sees the smaller batches",
                      [&model, half](TrainingSetup& t) {
                        t = with_batch(model, t, half);
                        t.accumulate *= 2;
                      },
                      true});
}

void add_compiler_tricks(const TrainingSetup& s, std::vector<Trick>& tricks) {
  if (!s.compile)
    tricks.push_back({"compile", "torch.compile", setting(Field::compile), "model = torch.compile(model)",
                      "fused kernels keep less for the backward pass, and most models run faster; the first step "
                      "compiles for a minute",
                      [](TrainingSetup& t) { t.compile = true; }});
  else if (s.activation_memory_budget > 0.5)
    tricks.push_back({"activation-memory-budget", "less kept by the compiler",
                      setting(Field::activation_memory_budget, "0.5"),
                      "torch._functorch.config.activation_memory_budget = 0.5",
                      "the compiled backward pass computes again what is cheapest to compute",
                      [](TrainingSetup& t) { t.activation_memory_budget = 0.5; }});
}

void add_optimizer_tricks(const TrainingSetup& s, std::vector<Trick>& tricks) {
  const OptimizerKind k = s.optimizer.kind;
  if (optimizer_model(k).adam && s.optimizer.impl != OptimizerImpl::fused)
    tricks.push_back({"fused-optimizer", "the fused optimizer", setting(Field::optimizer_impl, "fused"),
                      "torch.optim.AdamW(model.parameters(), fused=True)",
                      "no temporaries as large as the parameters in optimizer.step()",
                      [](TrainingSetup& t) { t.optimizer.impl = OptimizerImpl::fused; }, true});
  if (k == OptimizerKind::adamw)
    tricks.push_back({"8-bit-optimizer", "8-bit optimizer state", setting(Field::optimizer, "adamw8bit"),
                      "bitsandbytes.optim.AdamW8bit(model.parameters())", "numerics of the optimizer change a little",
                      [](TrainingSetup& t) {
                        t.optimizer.kind = OptimizerKind::adamw8bit;
                        t.optimizer.impl = OptimizerImpl::automatic;
                      },
                      true});
  if (s.zero_grad == ZeroGrad::begin_keep)
    tricks.push_back({"set-to-none", "gradients set to None", setting(Field::zero_grad, "begin"),
                      "optimizer.zero_grad(set_to_none=True)", "the default of PyTorch since 2.0",
                      [](TrainingSetup& t) { t.zero_grad = ZeroGrad::begin_set_none; }, true});
}

void add_training_tricks(const TrainingSetup& s, const Device& device, std::vector<Trick>& tricks) {
  if (s.precision == Precision::fp32) {
    const bool bf16 = device.sm_major >= 8;
    tricks.push_back(
        {"mixed-precision", "mixed precision",
         bf16 ? setting(Field::autocast, "bf16") : setting(Field::autocast, "fp16"),
         bf16 ? "with torch.autocast(\"cuda\", dtype=torch.bfloat16): loss = loss_fn(model(x), y)"
              : "with torch.autocast(\"cuda\", dtype=torch.float16): …; scaler = torch.amp.GradScaler(\"cuda\")",
         "halves activations, not weights, gradients or optimizer state; faster on tensor cores",
         [bf16](TrainingSetup& t) { t.precision = bf16 ? Precision::amp_bf16 : Precision::amp_fp16; }});
  }
  if (s.precision == Precision::bf16 && s.fp8 == Fp8::none && !s.lora && !s.offload.any())
    tricks.push_back({"fp8", "linears in 8 bits", setting(Field::precision, "fp8"),
                      "with transformer_engine.pytorch.fp8_autocast(enabled=True): loss = loss_fn(model(x), y)   # "
                      "nn.Linear replaced by te.Linear",
                      "for speed: copies of the weights in 8 bits (two where the card multiplies in one layout only) "
                      "lie beside those of 16, and only inputs of linears shrink; "
                      "it may need more memory than bfloat16",
                      [](TrainingSetup& t) { t.fp8 = Fp8::cached; }});
  if (s.mode != Mode::training) return;
  if (s.checkpoint.empty())
    tricks.push_back(
        {"checkpointing", "activation checkpointing of the repeated blocks", setting(Field::checkpoint, "blocks"),
         "block.forward = functools.partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)",
         "one more forward pass of the blocks", [](TrainingSetup& t) { t.checkpoint = {"blocks"}; }, true});
  add_optimizer_tricks(s, tricks);
  if (!s.keep_loss_history)
    tricks.push_back({"loss-history", "what a list of losses costs (losses.append(loss))",
                      setting(Field::keep_loss_history), "losses.append(loss.item())",
                      "a kept loss keeps its graph, step after step",
                      [](TrainingSetup& t) { t.keep_loss_history = true; }, true});
  if (optimizer_model(s.optimizer.kind).adam && !s.offload.any())
    tricks.push_back({"offload", "optimizer state in host memory", setting(Field::offload, "optimizer"),
                      "DeepSpeed: \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}",
                      "gradients and weights cross the bus every step",
                      [](TrainingSetup& t) { t.offload.optimizer = true; }, true});
  if (!s.lora)
    tricks.push_back({"lora", "low-rank adapters on frozen weights", setting(Field::lora, "r=16"),
                      "model = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules=\"all-linear\"))",
                      "another training: only the adapters learn", [](TrainingSetup& t) {
                        t.lora = LoraSetup{};
                        t.lora->rank = 16;
                      }});
  tricks.push_back({"no-grad", "no gradients where none are needed", setting(Field::mode, "inference"),
                    "with torch.no_grad(): output = model(x)",
                    "for evaluation between steps: what it saves there, not in training",
                    [](TrainingSetup& t) { t.mode = Mode::inference; }});
}

/// More than one GPU: as few as are enough where one is not, else two.
void add_parallel_tricks(const Model& model, const TrainingSetup& s, const Device& device, const MarginOf& margin,
                         const Estimate& known, std::vector<Trick>& tricks) {
  if (s.mode != Mode::training || is_parallel(resolve(s.parallel)) || s.offload.any() || s.keep_loss_history ||
      s.optimizer.kind == OptimizerKind::muon)
    return;
  TrainingSetup shared = s;
  shared.parallel = ParallelSetup{};
  shared.parallel.blocks = s.parallel.blocks;
  shared.parallel.gpus = 2;
  shared.parallel.sharding = Sharding::fsdp;
  shared.parallel = resolve(shared.parallel);
  std::string flags = setting(Field::gpus, "2") + " " + setting(Field::fsdp),
              title = "two GPUs that share weights, gradients and optimizer state (FSDP2)";
  if (judge(known, device, margin(device)).verdict != Verdict::fits)
    if (const std::optional<FewestGpus> few = fewest_gpus(model, s, device, margin, false)) {
      shared = few->setup;
      flags = few->flags;
      title = fmt::format("needs {} x this GPU: weights, gradients and optimizer state shared out (FSDP2){}", few->gpus,
                          shared.parallel.tensor > 1 ? ", blocks cut (tensor parallel)" : "");
    }
  tricks.push_back({"multi-gpu", title, flags,
                    "for module in [*blocks, model]: fully_shard(module)   # under torchrun --nproc-per-node",
                    "every GPU has its own samples; its activations stay", [shared](TrainingSetup& t) { t = shared; },
                    true});
  ParallelSetup tensor;
  tensor.gpus = tensor.tensor = 2;
  tensor.sequence_parallel = true;
  tensor = resolve(tensor);
  tricks.push_back(
      {"model-parallel", "two GPUs that divide every block (tensor parallel)",
       setting(Field::gpus, "2") + " " + setting(Field::tensor_parallel, "2") + " " + setting(Field::sequence_parallel),
       "parallelize_module(model, mesh, {\"….q_proj\": ColwiseParallel(), \"….o_proj\": RowwiseParallel()})",
       "weights and most activations are divided; wants fast links",
       [tensor](TrainingSetup& t) { t.parallel = tensor; }, true});
}

/// Without those that this setup does not allow.
std::vector<Advice> estimated(Tapes& tapes, const TrainingSetup& setup, const Device& device, Bytes margin,
                              const Estimate& known, const std::vector<Trick>& tricks) {
  std::vector<std::optional<Advice>> all(tricks.size());
  in_parallel(tricks.size(), [&](std::size_t i) {
    const Trick& t = tricks[i];
    Advice a{t.id, t.title, t.flags, t.snippet, t.note, {}, {}, Verdict::unknown};
    if (t.apply) {
      TrainingSetup changed = setup;
      t.apply(changed);
      const Result<Estimate> e = t.same_ops ? tapes.estimate_to_judge(changed, device, margin, known.sources)
                                            : tapes.estimate_to_judge(changed, device, margin);
      if (!e) return;  // a model without repeated blocks, an optimizer without such an implementation …
      a.peak = e->peak.process;
      a.saves = known.peak.process - e->peak.process;
      a.verdict = judge(*e, device, margin).verdict;
    }
    all[i] = std::move(a);
  });
  std::vector<Advice> out;
  for (std::optional<Advice>& a : all)
    if (a) out.push_back(std::move(*a));
  return out;
}

}  // namespace

std::vector<Advice> advice(const Model& model, Tapes& tapes, const TrainingSetup& setup, const Device& device,
                           const MarginOf& margin, const Estimate& known) {
  std::vector<Trick> tricks;
  add_batch_tricks(model, setup, tricks);
  add_training_tricks(setup, device, tricks);
  if (setup.mode == Mode::training) add_compiler_tricks(setup, tricks);
  add_parallel_tricks(model, setup, device, margin, known, tricks);
  if (!setup.allocator.expandable_segments)
    tricks.push_back({"fragmentation", "expandable segments", setting(Field::allocator, "expandable_segments:True"),
                      "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py",
                      fmt::format("{} of the peak are cached by the allocator and not in use; torch.cuda.empty_cache() "
                                  "gives back only what is free at that moment, "
                                  "and the next step takes it again",
                                  to_human(bytes_of(known, Part::cached))),
                      [](TrainingSetup& t) { t.allocator.expandable_segments = true; }, true});
  tricks.push_back({"monitoring", "watching what is used", "",
                    "torch.cuda.reset_peak_memory_stats(); …; print(torch.cuda.max_memory_allocated(), "
                    "torch.cuda.max_memory_reserved())",
                    fmt::format("expected here: allocated {}, reserved {}", to_human(known.peak.allocated),
                                to_human(known.peak.reserved)),
                    nullptr});

  return estimated(tapes, setup, device, margin(device), known, tricks);
}

}  // namespace memplan
