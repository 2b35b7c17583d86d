// Reads runs of the reference program, one JSON object per line ({"path": "data/models/mlp.onnx", "gpu": "h100",
// "batch": 8, "precision": "amp-bf16", "optimizer": "sgd-momentum", …}, the words of
// tests/accuracy/reference_program.py), and answers each with one line of JSON: what memplan says of its steps, or
// {"error": …}. Models stay loaded between runs. With "events": true the answer is the whole stream: [size, allocation,
// "phase op scope label"], size negative for a free.
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/torch/step/pipeline_steps.h"
#include "estimators/setup/names.h"
#include "estimators/transforms/checkpointing.h"
#include "planner/checkpointing/plan.h"

using namespace memplan;
using nlohmann::json;

namespace {

/// The figures of these cards that size scratch memory (NVIDIA's data sheets); the accuracy runs do not reach their
/// limits.
Device device_named(const std::string& name) {
  Device d;
  d.key = name;
  d.total = Bytes::gib(79);
  if (name == "h100") return d;
  if (name == "a100") {
    d.sm_major = 8;
    d.multiprocessors = 108;
    return d;
  }
  d = choose_device(name).device;
  d.total = Bytes::gib(79);
  return d;
}

Precision precision_named(const std::string& name) {
  static const std::map<std::string, Precision> all = {{"fp32", Precision::fp32},
                                                       {"bf16", Precision::bf16},
                                                       {"fp16", Precision::fp16},
                                                       {"amp-bf16", Precision::amp_bf16},
                                                       {"amp-fp16", Precision::amp_fp16}};
  if (auto it = all.find(name); it != all.end()) return it->second;
  fail(ErrorKind::usage, "no such precision: " + name);
}

OptimizerSetup optimizer_named(const std::string& name, const std::string& impl) {
  const auto chosen = value_in(optimizer_names, name);
  if (!chosen) fail(ErrorKind::usage, "no such optimizer: " + name);
  OptimizerSetup o;
  o.kind = chosen->kind;
  o.momentum = chosen->momentum ? 0.9 : 0.0;
  o.amsgrad = chosen->amsgrad;
  o.weight_decay = o.kind == OptimizerKind::adamw || o.kind == OptimizerKind::muon ? 0.01 : 0.0;
  o.impl = impl == "fused"     ? OptimizerImpl::fused
           : impl == "loop"    ? OptimizerImpl::loop
           : impl == "foreach" ? OptimizerImpl::foreach
                               : OptimizerImpl::automatic;
  return o;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

std::map<std::string, std::string> pairs_of(const std::string& text) {
  std::map<std::string, std::string> pairs;
  for (const std::string& word : words_of(text))
    pairs[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return pairs;
}

LoraSetup lora_of(const std::string& text) {
  LoraSetup lora;
  auto pairs = pairs_of(text);
  if (pairs.count("r")) lora.rank = std::stoll(pairs["r"]);
  if (pairs.count("dropout")) lora.dropout = std::stod(pairs["dropout"]);
  std::stringstream targets(pairs["targets"]);
  for (std::string target; std::getline(targets, target, '|');) lora.targets.push_back(target);
  return lora;
}

KvCacheSetup kv_cache_of(const std::string& text) {
  KvCacheSetup cache;
  auto pairs = pairs_of(text);
  cache.length = std::stoll(pairs["length"]);
  if (pairs.count("sequences")) cache.sequences = std::stoll(pairs["sequences"]);
  if (pairs.count("block")) cache.block = std::stoll(pairs["block"]);
  if (pairs.count("dtype"))
    cache.dtype = pairs["dtype"] == "fp8"    ? DType::float8_e4m3fn
                  : pairs["dtype"] == "bf16" ? DType::bfloat16
                                             : DType::float32;
  return cache;
}

std::optional<DType> floating_named(const json& run, const char* key) {
  const std::string name = run.contains(key) && run[key].is_string() ? run[key].get<std::string>() : "";
  if (name.empty()) return {};
  return name == "bf16" ? DType::bfloat16 : name == "fp16" ? DType::float16 : DType::float32;
}

void set_schedule(ParallelSetup& p, const std::string& text) {
  static const std::map<std::string, PipelineSchedule> all = {{"gpipe", PipelineSchedule::gpipe},
                                                              {"1f1b", PipelineSchedule::one_f_one_b},
                                                              {"interleaved", PipelineSchedule::interleaved},
                                                              {"zero-bubble", PipelineSchedule::zero_bubble},
                                                              {"zbv", PipelineSchedule::zbv}};
  if (text == "zbv") p.virtual_stages = 2;
  const auto colon = text.find(':');
  p.schedule = all.at(text.substr(0, colon));
  if (colon != std::string::npos) p.virtual_stages = std::stoll(text.substr(colon + 1));
}

/// The words of tests/accuracy/parallel_program.py.
ParallelSetup parallel_of(const json& run) {
  ParallelSetup p;
  const std::string strategy = run.value("strategy", "");
  if (strategy.empty()) return p;
  p.gpus = run.value("ranks", 8);
  static const std::map<std::string, Sharding> all = {
      {"ddp", Sharding::none}, {"fsdp", Sharding::fsdp}, {"tp", Sharding::none}, {"pp", Sharding::none}};
  static const Sharding stages[] = {Sharding::zero1, Sharding::zero2, Sharding::zero3};
  p.sharding = strategy == "zero" ? stages[run.at("zero").get<std::size_t>() - 1] : all.at(strategy);
  if (run.contains("overlap_comm") && run["overlap_comm"].is_number())
    p.overlap_communication = run["overlap_comm"].get<int>() != 0;
  if (run.contains("bucket_elements") && run["bucket_elements"].is_number()) p.reduce_bucket = run["bucket_elements"];
  p.gradient_as_bucket_view = run.value("bucket_view", false);
  if (run.contains("bucket_cap") && run["bucket_cap"].is_number()) p.bucket_cap_mib = run["bucket_cap"];
  p.lazy_buckets = run.value("lazy_buckets", false);
  p.reduce_buffers = run.value("reduce_buffers", 1);
  p.keep_unsharded = run.value("keep_unsharded", false);
  p.reshard_after_forward = !run.value("no_reshard", false);
  p.shard_size = run.value("hsdp", 0);
  p.param_dtype = floating_named(run, "fsdp_dtype");
  p.reduce_dtype = floating_named(run, "reduce_dtype");
  if (const std::string blocks = run.value("blocks", ""); !blocks.empty()) p.blocks = {blocks};
  p.tensor = run.value("tp", 1);
  p.sequence_parallel = run.value("sp", false);
  p.loss_parallel = run.value("loss_parallel", false);
  p.pipeline = run.value("pp", 1);
  p.micro_batches = run.value("micro_batches", 0);
  if (p.pipeline > 1) set_schedule(p, run.value("pp_schedule", "1f1b"));
  for (const std::string& n : words_of(run.value("pp_split", ""))) p.split.push_back(std::stoll(n));
  return resolve(p);
}

TrainingSetup setup_of(const json& run) {
  TrainingSetup s;
  if (run.contains("batch") && run["batch"].is_number()) s.batch = run["batch"].get<std::int64_t>();
  if (run.contains("seq") && run["seq"].is_number()) s.sequence = run["seq"].get<std::int64_t>();
  s.mode = run.value("mode", "train") == "inference" ? Mode::inference : Mode::training;
  s.precision = precision_named(run.value("precision", "fp32"));
  if (s.mode == Mode::training)
    s.optimizer = optimizer_named(run.value("optimizer", "adamw"), run.value("impl", "default"));
  s.accumulate = run.value("accumulate", 1);
  s.clip_grad_norm = run.value("clip", false);
  const std::string zero = run.value("zero_grad", "begin");
  s.zero_grad = zero == "end"     ? ZeroGrad::end_set_none
                : zero == "never" ? ZeroGrad::begin_keep
                                  : ZeroGrad::begin_set_none;
  s.allocator.expandable_segments = run.value("alloc_conf", "").find("expandable_segments:True") != std::string::npos;
  s.steps = run.value("repeat", 3);
  s.checkpoint = words_of(run.value("checkpoint", ""));
  if (run.contains("checkpoint_optimal")) {
    s.checkpoint_optimal = true;
    s.checkpoint_budget = Bytes(run["checkpoint_optimal"].get<std::int64_t>());
  }
  s.checkpoint_save = words_of(run.value("checkpoint_save", ""));
  for (const std::string& word : words_of(run.value("offload", "")))
    (word == "activations" ? s.offload.activations
     : word == "optimizer" ? s.offload.optimizer
                           : s.offload.parameters) = true;
  if (run.contains("lora")) s.lora = lora_of(run["lora"].get<std::string>());
  if (run.contains("kv_cache")) s.kv_cache = kv_cache_of(run["kv_cache"].get<std::string>());
  s.channels_last = run.value("channels_last", false);
  s.keep_loss_history = run.value("loss_history", false);
  s.empty_cache = run.value("empty_cache", false);
  s.parallel = parallel_of(run);
  s.runtime.version = run.value("torch", s.runtime.version);
  if (run.contains("env")) s.runtime.environment = run["env"].get<std::map<std::string, std::string>>();
  return s;
}

json peaks_of(const Estimate& e) {
  json steps = json::array();
  for (const StepSummary& s : e.steps) {
    if (s.step == 0) continue;  // the set-up
    steps.push_back({{"requested", s.peak.requested.count},
                     {"allocated", s.peak.allocated.count},
                     {"reserved", s.peak.reserved.count},
                     {"after", {{"requested", s.requested_after.count}, {"allocated", s.allocated_after.count}}}});
  }
  return steps;
}

/// What runs twice: the modules, and their share of the forward pass.
json recomputed(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  const json modules = checkpoint_words(tape);
  const std::vector<double> seconds = unwrap(call_seconds(tape, setup, device));
  double forward = 0;
  for (double s : seconds) forward += s;
  return {{"modules", modules},
          {"share", recompute_seconds(tape.checkpoints, seconds) / forward},
          {"calls", tape.calls.size()}};
}

json events_of(const Schedule& schedule, const Tape& tape) {
  json events = json::array();
  std::size_t op = 0;
  for (std::size_t i = 0; i < schedule.events.size(); ++i) {
    while (op + 1 < schedule.ops.size() && schedule.ops[op + 1].first_event <= static_cast<std::int32_t>(i)) ++op;
    const Event& e = schedule.events[i];
    if (e.kind == Event::Kind::empty_cache) continue;
    const Allocation& a = schedule.allocations[static_cast<std::size_t>(e.allocation)];
    const OpRecord& o = schedule.ops[op];
    std::string text = std::string(name_of(o.phase)) + " " + schedule.names[static_cast<std::size_t>(o.name)];
    if (o.scope >= 0) text += " " + tape.scopes[static_cast<std::size_t>(o.scope)].path;
    if (a.label >= 0) text += " " + schedule.names[static_cast<std::size_t>(a.label)];
    events.push_back({e.kind == Event::Kind::alloc ? a.size.count : -a.size.count, e.allocation, text});
  }
  return events;
}

}  // namespace

int main() {
  std::map<std::string, std::shared_ptr<const Model>> models;
  std::string line;
  while (std::getline(std::cin, line)) {
    json answer;
    try {
      const json run = json::parse(line);
      std::shared_ptr<const Model>& model = models[run.at("path").get<std::string>()];
      if (!model) model = std::make_shared<const Model>(unwrap(load_model(run["path"].get<std::string>())));
      const TrainingSetup setup = setup_of(run);
      const Device device = device_named(run.value("gpu", "h100"));
      if (setup.parallel.pipeline > 1) {
        // One rank, not the heaviest.
        const Tape tape = unwrap(tape_of(*model, setup));
        const Ranks ranks = resolve(setup.parallel);
        const Schedule schedule = run_pipeline_steps(tape, setup, ranks, device, run.value("rank", 0),
                                                     pipeline_shapes(tape, setup, ranks, device));
        if (run.value("events", false))
          answer["events"] = events_of(schedule, tape);
        else
          answer["steps"] =
              peaks_of(unwrap(summarize(tape, schedule, unwrap(replay(schedule, setup, device)), setup, device)));
      } else if (run.value("events", false)) {
        const Tape tape = unwrap(tape_of(*model, setup));
        answer["events"] = events_of(unwrap(run_steps(tape, setup, device)), tape);
      } else {
        const Planned planned = unwrap(with_planned_checkpoints(*model, setup, device));
        const Estimate e = unwrap(estimate_tape(planned.tape, planned.setup, device));
        if (run.value("recompute", false)) answer["recompute"] = recomputed(planned.tape, setup, device);
        answer["steps"] = peaks_of(e);
        answer["parameters"] = e.parameter_count;
        for (const Unmodelled& u : e.unmodelled) answer["unmodelled"].push_back(u.op);
      }
    } catch (const Failure& f) {
      answer["error"] = f.error().what + (f.error().where.empty() ? "" : " at " + f.error().where);
    } catch (const std::exception& f) {
      answer["error"] = f.what();
    }
    std::cout << answer.dump() << std::endl;
  }
}
