#include "estimators/dryrun/request.h"

#include <nlohmann/json.hpp>
#include <string>

#include "estimators/base/error.h"
#include "estimators/tape/tape_json.h"

namespace memplan {

using nlohmann::json;

namespace {

json setup_to_json(const TrainingSetup& s) {
  // Both ends are built from the same headers, so enumerations travel as numbers.
  return {{"mode", static_cast<int>(s.mode)},
          {"precision", static_cast<int>(s.precision)},
          {"loss", static_cast<int>(s.loss)},
          {"optimizer", {{"kind", static_cast<int>(s.optimizer.kind)}, {"impl", static_cast<int>(s.optimizer.impl)}, {"momentum", s.optimizer.momentum},
                         {"nesterov", s.optimizer.nesterov}, {"weight_decay", s.optimizer.weight_decay}, {"amsgrad", s.optimizer.amsgrad}}},
          {"accumulate", s.accumulate},
          {"clip", s.clip_grad_norm},
          {"zero_grad", static_cast<int>(s.zero_grad)},
          {"attention", static_cast<int>(s.attention)},
          {"keep_loss_history", s.keep_loss_history},
          {"empty_cache", s.empty_cache},
          {"channels_last", s.channels_last},
          {"steps", s.steps}};
}

TrainingSetup setup_from_json(const json& j) {
  TrainingSetup s;
  s.mode = static_cast<Mode>(j.at("mode").get<int>());
  s.precision = static_cast<Precision>(j.at("precision").get<int>());
  s.loss = static_cast<Loss>(j.at("loss").get<int>());
  const json& o = j.at("optimizer");
  s.optimizer.kind = static_cast<OptimizerKind>(o.at("kind").get<int>());
  s.optimizer.impl = static_cast<OptimizerImpl>(o.at("impl").get<int>());
  s.optimizer.momentum = o.at("momentum").get<double>();
  s.optimizer.nesterov = o.at("nesterov").get<bool>();
  s.optimizer.weight_decay = o.at("weight_decay").get<double>();
  s.optimizer.amsgrad = o.at("amsgrad").get<bool>();
  s.accumulate = j.at("accumulate").get<std::int64_t>();
  s.clip_grad_norm = j.at("clip").get<bool>();
  s.zero_grad = static_cast<ZeroGrad>(j.at("zero_grad").get<int>());
  s.attention = static_cast<AttentionBackend>(j.at("attention").get<int>());
  s.keep_loss_history = j.value("keep_loss_history", false);
  s.empty_cache = j.value("empty_cache", false);
  s.channels_last = j.value("channels_last", false);
  s.steps = j.at("steps").get<std::int64_t>();
  return s;
}

}  // namespace

DryRunRequest make_request(const Tape& tape, const TrainingSetup& setup, const Schedule& predicted) {
  DryRunRequest request{tape, setup, std::nullopt, true};
  for (const Allocation& a : predicted.allocations) {
    if (a.category != Category::input || a.label < 0 || a.shape_at < 0) continue;
    if (predicted.names[static_cast<std::size_t>(a.label)] != "target") continue;
    const TensorShape& shape = predicted.shapes[static_cast<std::size_t>(a.shape_at)];
    request.target = DryRunTarget{static_cast<DType>(shape.dtype), shape.sizes};
    break;
  }
  return request;
}

json to_json(const DryRunRequest& r) {
  json j{{"tape", to_json(r.tape)}, {"setup", setup_to_json(r.setup)}, {"events", r.events}};
  j["target"] = r.target ? json{{"dtype", name_of(r.target->dtype)}, {"sizes", r.target->sizes}} : json(nullptr);
  return j;
}

DryRunRequest request_from_json(const json& j) try {
  DryRunRequest r;
  r.tape = tape_from_json(j.at("tape"));
  r.setup = setup_from_json(j.at("setup"));
  r.events = j.value("events", true);
  if (const json& t = j.at("target"); t.is_object()) {
    const auto dtype = dtype_from_name(t.at("dtype").get<std::string>());
    if (!dtype) fail_input("the target has an unknown dtype");
    r.target = DryRunTarget{*dtype, t.at("sizes").get<std::vector<std::int64_t>>()};
  }
  return r;
} catch (const json::exception& e) {
  fail_input(std::string("the request of a dry run is not as expected: ") + e.what());
}

}  // namespace memplan
