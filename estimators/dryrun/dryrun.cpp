#include "estimators/dryrun/dryrun.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "estimators/companion/companion.h"
#include "estimators/facts/cards.h"
#include "estimators/setup/field.h"
#include "estimators/setup/strategies.h"
#include "estimators/transforms/checkpointing.h"

namespace memplan {

using nlohmann::json;

namespace {

MeasuredCounters counters(const json& j) {
  return {Bytes(j.at("requested").get<std::int64_t>()), Bytes(j.at("allocated").get<std::int64_t>()),
          Bytes(j.at("reserved").get<std::int64_t>()), std::nullopt};
}

/// The emulated GPU knows cards by name; one given by its size is an H100 with that many bytes.
std::string emulated_card(const Device& device) {
  const std::string key = card_of(device);
  return key.empty() ? "h100-80gb" : key;
}

/// What the tape and the reference program of memplan_torch/ do not carry. Better no comparison than one of two
/// programs.
void refuse_unsupported(const TrainingSetup& s) {
  const auto refuse = [](bool given, const char* what, std::string field, std::string hint) {
    if (given)
      fail(ErrorKind::usage, std::string("a dry run cannot execute ") + what, std::move(field), std::move(hint));
  };
  const char* script = "memplan observe runs a script that does";
  const ParallelSetup& p = s.parallel;
  refuse(
      is_parallel(p) || p.expert > 1 || !strategy_of(p).buckets,
      "a job of several GPUs: it runs one process on one device",
      p.pipeline > 1  ? setting(Field::pipeline_parallel)
      : p.tensor > 1  ? setting(Field::tensor_parallel)
      : p.context > 1 ? setting(Field::context_parallel)
                      : setting(Field::gpus),
      "memplan observe " + setting(Field::observed_ranks, "N") + " runs a script that does, one rank after the other");
  refuse(s.fp8 != Fp8::none, "linears in 8 bits: their kernels are those of Transformer Engine",
         setting(Field::precision, "fp8"), script);
  refuse(!s.checkpoint_save.empty(), "selective checkpointing: PyTorch does it in Python's dispatch modes",
         setting(Field::checkpoint_save), script);
  refuse(s.checkpoint_optimal, "checkpoints that are yet to be chosen", setting(Field::checkpoint, "optimal"),
         "memplan prints the modules that it chose: give those to " + setting(Field::checkpoint));
  refuse(s.offload.parameters, "offloaded parameters: accelerate's hooks are Python's",
         setting(Field::offload, "parameters"), script);
  refuse(s.offload.activations && !s.checkpoint.empty(),
         "checkpoints inside of offloaded activations: a file does not say which arguments of a module are keywords, "
         "and those stay on the device",
         setting(Field::offload, "activations"), script);
  refuse(s.lora && s.lora->quantized, "4-bit weights: their kernels are those of bitsandbytes",
         setting(Field::lora_quantized), script);
  refuse(s.optimizer.kind == OptimizerKind::adamw8bit, "bitsandbytes' optimizer",
         setting(Field::optimizer, "adamw8bit"),
         "use adamw, adam, sgd, adagrad, rmsprop, adafactor, adafactor-hf, lion, muon or none");
  refuse(s.optimizer.impl == OptimizerImpl::fused && s.precision == Precision::amp_fp16,
         "fused optimizers under a gradient scaler", setting(Field::optimizer_impl, "fused"),
         "leave it out, or use " + setting(Field::autocast, "bf16"));
}

CompanionCall call_for(const DryRunPlace& place) {
  CompanionCall call{"execute", {}, {}};
  call.limits.time = place.time_limit;
  for (const auto& [name, value] : place.variables) call.environment.emplace_back(name, value);
  if (!place.allocator_settings.empty()) {
    call.environment.emplace_back("PYTORCH_ALLOC_CONF", place.allocator_settings);
    // The older name would win.
    call.environment.emplace_back("PYTORCH_CUDA_ALLOC_CONF", place.allocator_settings);
  }
  if (place.emulated)
    for (auto& [name, value] : emulated_environment(place.card)) call.environment.emplace_back(name, value);
  return call;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> emulated_environment(const Device& card) {
  const char* preload = std::getenv("LD_PRELOAD");
  const std::string library = emulated_gpu_library();
  return {{"LD_PRELOAD", preload && *preload ? library + ":" + preload : library},
          // One given by its size is an H100 with that many bytes, here as in facts/devices.cpp.
          {"EMULATED_GPU", emulated_card(card)},
          {"EMULATED_GPU_TOTAL", std::to_string(card.total.count)},
          {"EMULATED_GPU_CONTEXT", std::to_string(card.context.count)},
          {"EMULATED_GPU_COUNT", "1"}};
}

DryRun dry_run_from_reply(const json& reply) try {
  DryRun run;
  Measurement& m = run.measured;
  for (const json& j : reply.at("steps")) {
    m.steps.push_back({j.at("step").get<std::int64_t>(), counters(j.at("peak")), counters(j.at("after"))});
    const MeasuredCounters& p = m.steps.back().peak;
    m.peak.requested = std::max(m.peak.requested, p.requested);
    m.peak.allocated = std::max(m.peak.allocated, p.allocated);
    m.peak.reserved = std::max(m.peak.reserved, p.reserved);
  }
  for (const json& j : reply.at("phases"))
    m.phases.push_back({j.at("step").get<std::int64_t>(), j.at("phase").get<std::string>(), counters(j.at("peak"))});
  m.names = reply.value("names", std::vector<std::string>());
  const auto name = [&](const json& j) {
    const auto i = j.get<std::int32_t>();
    if (i < -1 || i >= static_cast<std::int64_t>(m.names.size()))
      fail(ErrorKind::internal, "memplan-torch names something that it did not send");
    return i;
  };
  for (const json& j : reply.value("ops", json::array()))
    m.ops.push_back(
        {name(j.at(0)), name(j.at(4)), j.at(1).get<std::int32_t>(), name(j.at(2)), j.at(3).get<std::int64_t>()});
  for (const json& j : reply.value("events", json::array())) {
    const auto op = j.at(3).get<std::int32_t>();
    const int kind = j.at(0).get<int>();
    if (op < -1 || op >= static_cast<std::int64_t>(m.ops.size()) || kind < 0 || kind > 4)
      fail(ErrorKind::internal, "memplan-torch sent an event of no known kind or op");
    m.events.push_back(
        {static_cast<MeasuredEvent::Kind>(kind), j.at(1).get<std::int64_t>(), j.at(2).get<std::uint64_t>(), op});
  }
  if (reply.at("out_of_memory").is_string()) m.out_of_memory = reply.at("out_of_memory").get<std::string>();
  const json& d = reply.at("device");
  run.device.name = m.device = d.value("name", "");
  run.device.total = Bytes(d.value("usable_bytes", std::int64_t{0}));
  run.device.multiprocessors = d.value("multiprocessors", 0);
  const std::string capability = d.value("compute_capability", "0.0");
  run.device.sm_major = std::atoi(capability.c_str());
  run.device.sm_minor = std::atoi(capability.c_str() + std::min(capability.size(), capability.find('.') + 1));
  // The context and libraries: what is in use without the allocator's own.
  const std::int64_t reserved = m.steps.empty() ? 0 : m.steps.back().after.reserved->count;
  run.device.context = Bytes(std::max<std::int64_t>(0, d.value("used_bytes", std::int64_t{0}) - reserved));
  m.source = "PyTorch " + reply.value("torch", "");
  return run;
} catch (const json::exception& e) {
  fail(ErrorKind::internal, std::string("the reply of memplan-torch is not as expected: ") + e.what());
}

DryRun dry_run(const DryRunRequest& request, const DryRunPlace& place) {
  refuse_unsupported(request.setup);
  if (nests(request.tape))
    fail(ErrorKind::usage, "a dry run cannot execute checkpoints inside of checkpoints", setting(Field::checkpoint),
         "memplan observe runs a script that does: explain " + setting(Field::reference_program) + " prints one");
  const CompanionCall call = call_for(place);
  DryRun run = dry_run_from_reply(ask_companion(call, {{"request", to_json(request)}, {"device", place.index}}));
  run.measured.source += std::string(place.emulated ? " on an emulated " : " on the ") + run.measured.device;
  if (!place.emulated) {
    // What nvidia-smi shows at the peak, if nothing else uses the card.
    run.measured.peak.process = run.device.context + *run.measured.peak.reserved;
    run.measured.notes.push_back(
        "process bytes are those of the whole device: they are right only where nothing else uses it");
  }
  return run;
}

}  // namespace memplan
