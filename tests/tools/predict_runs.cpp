// Reads runs of the reference program, one JSON object per line ({"path": "data/models/mlp.onnx", "gpu": "h100", "batch": 8,
// "precision": "amp-bf16", "optimizer": "sgd-momentum", …}, the words of tests/accuracy/reference_program.py), and answers
// each with one line of JSON: what memplan says of its steps, or {"error": …}. Models stay loaded between runs. With
// "events": true the answer is the whole stream: [size, allocation, "phase op scope label"], size negative for a free.
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "estimators/pipeline.h"

using namespace memplan;
using nlohmann::json;

namespace {

/// The figures of these cards that size scratch memory (NVIDIA's data sheets); the accuracy runs do not reach their limits.
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
  fail(ErrorKind::usage, "no such card: " + name);
}

Precision precision_named(const std::string& name) {
  static const std::map<std::string, Precision> all = {{"fp32", Precision::fp32},         {"bf16", Precision::bf16},
                                                       {"fp16", Precision::fp16},         {"amp-bf16", Precision::amp_bf16},
                                                       {"amp-fp16", Precision::amp_fp16}};
  if (auto it = all.find(name); it != all.end()) return it->second;
  fail(ErrorKind::usage, "no such precision: " + name);
}

OptimizerSetup optimizer_named(const std::string& name, const std::string& impl) {
  static const std::map<std::string, OptimizerKind> all = {
      {"none", OptimizerKind::none},   {"sgd", OptimizerKind::sgd},         {"sgd-momentum", OptimizerKind::sgd},
      {"adam", OptimizerKind::adam},   {"adamw", OptimizerKind::adamw},     {"adamw-amsgrad", OptimizerKind::adamw},
      {"adagrad", OptimizerKind::adagrad}, {"rmsprop", OptimizerKind::rmsprop}, {"adafactor", OptimizerKind::adafactor}};
  const auto it = all.find(name);
  if (it == all.end()) fail(ErrorKind::usage, "no such optimizer: " + name);
  OptimizerSetup o;
  o.kind = it->second;
  o.momentum = name == "sgd-momentum" ? 0.9 : 0.0;
  o.amsgrad = name == "adamw-amsgrad";
  o.weight_decay = o.kind == OptimizerKind::adamw ? 0.01 : 0.0;
  o.impl = impl == "fused" ? OptimizerImpl::fused : impl == "loop" ? OptimizerImpl::loop : impl == "foreach" ? OptimizerImpl::foreach : OptimizerImpl::automatic;
  return o;
}

TrainingSetup setup_of(const json& run) {
  TrainingSetup s;
  if (run.contains("batch") && run["batch"].is_number()) s.batch = run["batch"].get<std::int64_t>();
  if (run.contains("seq") && run["seq"].is_number()) s.sequence = run["seq"].get<std::int64_t>();
  s.mode = run.value("mode", "train") == "inference" ? Mode::inference : Mode::training;
  s.precision = precision_named(run.value("precision", "fp32"));
  if (s.mode == Mode::training) s.optimizer = optimizer_named(run.value("optimizer", "adamw"), run.value("impl", "default"));
  s.accumulate = run.value("accumulate", 1);
  s.clip_grad_norm = run.value("clip", false);
  const std::string zero = run.value("zero_grad", "begin");
  s.zero_grad = zero == "end" ? ZeroGrad::end_set_none : zero == "never" ? ZeroGrad::begin_keep : ZeroGrad::begin_set_none;
  s.allocator.expandable_segments = run.value("alloc_conf", "").find("expandable_segments:True") != std::string::npos;
  s.steps = run.value("repeat", 3);
  return s;
}

template <class T>
T take(Result<T> result) {
  if (!result.ok()) throw Failure(result.error());
  return std::move(result.value());
}

json peaks_of(const Estimate& e) {
  json steps = json::array();
  for (const StepSummary& s : e.steps) {
    if (s.step == 0) continue;  // the set-up
    steps.push_back({{"requested", s.peak.requested.count}, {"allocated", s.peak.allocated.count}, {"reserved", s.peak.reserved.count},
                     {"after", {{"requested", s.requested_after.count}, {"allocated", s.allocated_after.count}}}});
  }
  return steps;
}

json events_of(const Schedule& schedule, const Tape& tape) {
  json events = json::array();
  std::size_t op = 0;
  for (std::size_t i = 0; i < schedule.events.size(); ++i) {
    while (op + 1 < schedule.ops.size() && schedule.ops[op + 1].first_event <= static_cast<std::int32_t>(i)) ++op;
    const Event& e = schedule.events[i];
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
      if (!model) model = std::make_shared<const Model>(take(load_model(run["path"].get<std::string>())));
      const TrainingSetup setup = setup_of(run);
      const Device device = device_named(run.value("gpu", "h100"));
      if (run.value("events", false)) {
        const Tape tape = take(lower(*model, setup));
        answer["events"] = events_of(take(run_steps(tape, setup, device)), tape);
      } else {
        const Estimate e = take(estimate(*model, setup, device));
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
